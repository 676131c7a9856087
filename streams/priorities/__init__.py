"""The read priority of Pulsar's brokers, and the fallback to the other tier. The decisions are in `state/reads/`."""
