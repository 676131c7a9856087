"""Connectors, one package per system: observation, actions, and a sandbox. The only importers of client libraries."""
