"""The admin REST API of Pulsar's brokers: offload policies, and unloading of topics."""
