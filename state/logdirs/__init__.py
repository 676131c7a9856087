"""Log directories of Kafka brokers: sizes, plans, moves."""
