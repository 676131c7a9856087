"""The journal's store: Kafka topics."""
