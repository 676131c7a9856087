"""BookKeeper: ledger metadata, bookies, under-replication marks, deletions, and reads from bookies."""
