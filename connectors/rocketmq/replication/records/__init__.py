"""Messages as records of `connectors.replication.ports`, and back: one by one, and as arrays."""
