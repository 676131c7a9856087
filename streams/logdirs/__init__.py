"""The log directory stream."""
