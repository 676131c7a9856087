"""Replication between log systems: the ports that a system implements, and what is built on them alone.

No module here knows a system. `connectors.contract` says what a copier is; this package has one that copies between any
two systems (path ``records``), and the clients of what a link does beside copying.

- ``ports``: what a system implements to be read, written and administered. Begin here.
- ``pump``: the copier: read, write, wait for the acknowledgement. ``track``: how far each log came.
- ``resume``, ``tail``: how far a copy came, found in the tail of the target log. It does not need the journal.
- ``headers``: what the copier adds to a record. ``packed``: records of several systems as arrays.
- ``failures``, ``transforms``: records that the target refuses, and code of the operator.
- ``config_sync``, ``group_sync``, ``heartbeat``: topics and rights, groups, heartbeats.
- ``rate_limit``, ``remembered``, ``garbage``: small parts.

What must stay: an offset moves past a record only after its acknowledgement, or after it was counted as dropped with a
reason. What a record contains proves nothing about who wrote it: the system of the target binds a tag to the message.
"""
