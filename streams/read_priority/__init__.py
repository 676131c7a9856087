"""The read priority of Pulsar's brokers, and the fallback to the other tier. Decisions: `state/read_priority/`."""
