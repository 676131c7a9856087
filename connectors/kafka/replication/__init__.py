"""What links need of Kafka clusters beside the copying."""
