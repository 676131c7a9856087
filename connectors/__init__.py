"""Connectors, one package per system: observation and actions. The only importers of client libraries."""
