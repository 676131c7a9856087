"""Pulsar's metadata in ZooKeeper: references to ledgers, and the guarded deletion of a ledger."""
