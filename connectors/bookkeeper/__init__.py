"""BookKeeper: ledger metadata, bookies, marks; and the acts that its own workers carry out."""
