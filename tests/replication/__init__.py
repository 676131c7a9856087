"""Verification of replication: all kinds of writers, faults, and an audit that compares whole logs."""
