"""Proof of replication: writers of every kind, faults, and an audit that compares whole logs."""
