"""Connections, metadata and groups of Kafka clusters."""
