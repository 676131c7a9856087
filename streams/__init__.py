"""Spark wiring, sinks, the supervisor, the command line, metrics and the status page."""
