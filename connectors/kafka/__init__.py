"""Kafka: clients, protocol, log directories, the journal and replication."""
