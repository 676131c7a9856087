"""Reader and writer of Kafka for the generic pump that speak the protocol themselves: records as arrays."""
