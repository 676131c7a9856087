"""The BookKeeper cluster, shared by the placement and deletion streams.

- ``cluster``: the resource: the session, the capture of metadata into the journal, current reads, guarded deletions. A
  stream requests it with `Context.resource`; the application starts and stops it.
- ``keeper``: the topology. It settles what was observed (`state.bookkeeper.membership`) and publishes the result.
- ``reached``: how far ZooKeeper was read, to detect one that was restored from an older copy.
- ``journal_rebuild``: removes what was observed of such a ZooKeeper from the journal.
- ``codec``, ``topics``: records of the journal. ``selection``: ledgers by bookie or namespace, for lists.
- ``checks``, ``bookie_checks``, ``worker_checks``: its part of `trueup doctor`.
- ``worker_versions``: whether AutoRecovery daemons are new enough to repair placement.

What must stay: the journal contains full values with their versions, never deltas, so that any record can come again. A
znode that is not readable is a record of its own (UNREADABLE), and not the absence of one.
"""
