"""The settings of Kafka clusters."""
