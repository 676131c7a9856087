"""Links between clusters: leases, offset maps, groups, loops and anomalies.

This package decides; the copy itself is `connectors.replication` and the connectors of the systems, and the loops of a
link are in `streams.replication.links`. No module here names a system.

What is copied, and where to:

- ``settings``, ``validation``, ``clusters``: the links and the clusters that they name.
- ``leases``, ``names``: the topics of a link, their names at the target, and their division among tasks.
- ``provenance``: the clusters that a record passed. It ends loops. ``topology``: no record may arrive on two routes.

What was copied:

- ``offset_map``: which record is where, from acknowledgements.
- ``group_offsets``: where a group continues at another cluster. Nothing unread is skipped, whoever copied it.

What is wrong:

- ``anomalies``: what two observations of a partition show, and the choice of the path.
- ``verdicts``: the state of a link and of its partitions; ``waits``: since when records wait.
- ``recovery``: the commands that lead out of each state, as a table. ``rules``: all verdicts, in words.

What else the target gets: ``config_sync`` (topics, settings, ACLs) and ``group_settings``; ``changes`` names the kinds.

What must stay: position moves past a record only if it was copied or counted with a reason. What is not known is -1,
empty or ``unknown``, and never 0 or ``up``. The producer ids of ``provenance`` and the records of ``offset_map`` are
stored in clusters and in the journal: records that exist must stay readable.
"""
