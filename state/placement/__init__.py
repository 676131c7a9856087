"""Whether the copies of a ledger stand on enough racks, and what would make it so."""
