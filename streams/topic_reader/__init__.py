"""Reads of topics without a broker, from BookKeeper and tiered storage."""
