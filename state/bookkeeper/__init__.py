"""Ledgers, bookies and racks, as recorded in BookKeeper's metadata."""
