"""Ledgers, bookies and racks, as BookKeeper's metadata tell of them."""
