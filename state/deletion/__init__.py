"""Which ledgers and objects nobody points to, and when they may be deleted."""
