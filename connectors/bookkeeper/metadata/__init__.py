"""Ledger metadata, racks and bookies from ZooKeeper."""
