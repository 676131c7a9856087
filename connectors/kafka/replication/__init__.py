"""Replication of Kafka clusters: administration, readers, writers and the fused copy paths."""
