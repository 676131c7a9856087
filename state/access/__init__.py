"""Callers of the API: roles and tokens."""
