"""Reads of topics from BookKeeper and tiered storage: priorities, and the tier that serves a ledger."""
