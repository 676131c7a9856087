"""Whether the replicas of a ledger span enough racks, and which repairs are necessary."""
