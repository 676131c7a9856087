"""The running links: what each does in a batch, its tasks, and what it does beside copying.

Copying:

- ``link``: the leases of the next round, and the results of the last one. ``orders`` makes the leases.
- ``checkpoints``: the progress of each partition, and its records in the journal. Begin here.
- ``memory``: what else a link stores in the journal.
- ``worker``: one lease, in a Spark worker. ``first_offsets``: where a partition begins that was never copied.

Beside it:

- ``monitor``: the loops of one link: it observes both clusters, chooses the path and detects anomalies. ``ends`` are
  the two clusters; ``snapshot`` is what one observation shows.
- ``config_sync``: topics, settings and rights of the target. ``group_sync``: offsets of groups, by the maps that
  ``group_maps`` combines.
- ``status``: observations for `state.replication.verdicts`, at each request.

Ways out of a stop:

- ``standing``: the state of a partition for `state.replication.recovery`. ``reset``, ``refill``: its commands.

What must stay: a copy belongs to two logs, each with an id. If an id changes, the copy stops until an operator decides,
and its map is not used.
"""
