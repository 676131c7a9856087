"""Log directories of Kafka brokers: sizes, plans, moves.

What enters: one broker as DescribeLogDirs reports it (`model.Broker`), the settings, and what Trueup changed before
(`verdicts.OwnChanges`). What leaves: a `verdicts.Decision`: directories to cordon, moves to start, a throttle.

Read in this order:

1. ``model``: the broker, and how full each volume is after the moves in progress. ``rank`` has the strategies of
   KIP-178.
2. ``plan``: the moves that bring a broker to its target with few bytes, and those of them that may start now.
3. ``verdicts``: both together, without touching what other clients changed.
4. ``lifecycle``: the stages of one move, as a table. Only the next response of the broker moves it.

``assignment`` places the partitions of a new topic. ``snapshot`` has the rows for people. ``rules`` and ``settings``
are the verdicts and the section of the configuration.

What must stay: a size that a broker did not report is unknown, and never 0. Trueup reverts its own cordons and
throttles, in every mode, and nobody else's. No Spark state depends on this package: the journal has
`OwnChanges` as a record.
"""
