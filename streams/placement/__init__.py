"""The placement stream."""
