"""One package per system: observe it, act on it, start a real one. The only importers of client libraries."""
