"""Pulsar's metadata in ZooKeeper: what points to ledgers, observed, and the one guarded way to delete a ledger."""
