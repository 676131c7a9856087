"""Kafka clusters, as an operator declares them."""
