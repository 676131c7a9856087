"""The journal in Kafka: topics, schemas, rows in and out.

Observations, decisions and settings are records of its topics. Topics are compacted, so a topic from its start is a
snapshot; only the history expires. The package knows no stream: a topic is declared by the package that uses it.

- ``topic``: what a topic is: name, Avro schema, key, and the function that makes a value of a record. ``codec``: one
  record as bytes. ``encode`` and ``decode``: many records at once, in columns.
- ``journal``: reads and writes. A write is acknowledged by the brokers, or its result is unknown and it is repeated.
- ``signing``, ``seals``: signatures of records that lead to actions, because other clients may write to the topics.
- ``unreadable``: records that are not readable. They are skipped and reported; ``repair`` rewrites what can be read.
- ``ranges``: numbers that a schema bounds. ``catch_up``: whether a query has read what the journal held at its start.
- ``history``, ``history_row``: the actions of all streams. ``channel``: how workers write to the journal.

What must stay: no record ends a start or a query. A schema changes by new fields with defaults; kept records of every
topic are compared in the tests (`tests.formats`).
"""
