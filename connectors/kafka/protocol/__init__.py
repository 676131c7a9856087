"""Formats of Kafka that no library provides."""
