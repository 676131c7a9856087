"""Replication from and to clusters of RocketMQ."""
