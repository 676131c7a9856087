"""Which bookies hold a ledger, and the removal of ledgers."""
