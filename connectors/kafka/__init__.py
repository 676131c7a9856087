"""Kafka as a system to look after (its own data path lives in the clients)."""
