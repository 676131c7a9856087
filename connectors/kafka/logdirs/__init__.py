"""Log directories of brokers: sizes, moves, throttles, cordons."""
