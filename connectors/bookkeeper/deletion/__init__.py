"""Which bookies have a ledger, and its removal."""
