"""Formats of Kafka that no library offers."""
