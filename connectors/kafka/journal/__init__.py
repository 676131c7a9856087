"""Kafka topics as the store of the journal."""
