"""Reader and writer of Kafka for the generic pump that speak the protocol themselves: records as arrays.

- ``reader``: one fetch in flight for each leader. ``decode``: batches as records of `connectors.replication.ports`.
- ``writer``: an idempotent producer with one batch in flight for each partition. ``encode``: records as batches.
- ``producers``: producer ids that say that a link wrote a batch, and which clusters its records passed.
- ``pending``: batches between a leader and the pump, without I/O.
- ``tails``, ``target``: how far a copy came at the target, and its ends.
- ``topic_identity``: whether a topic is still the intended one. ``errors``: permanent refusals.

What must stay: the tag of a copy is the producer id of its batch. Headers can come from any application.
"""
