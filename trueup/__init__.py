"""Streaming reconciliation for log-storage clusters: declare what should be true, watch, close the difference."""
