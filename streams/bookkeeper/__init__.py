"""What placement and deletion share of a BookKeeper cluster."""
