"""The replication stream."""
