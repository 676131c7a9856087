"""Ledgers and objects that nothing references, and when they may be deleted."""
