"""The placement stream.

Ledgers and the topology come from the journal, where ``bookkeeper`` (the package beside this one) publishes them. One
Spark query folds them into buckets; its answers and the marks in ZooKeeper meet in the reconciler, which orders marks.
The decisions are those of `state.placement`.

- ``query``: records in, one packed row for each bucket out. Every Python worker imports it, so it imports little.
- ``reconciler``: the loop. It records each order in the journal before it is executed, and ends it by observations.
- ``repairs``: ``auditor_role`` is what Trueup does in ZooKeeper in the place of BookKeeper's Auditor: the vote, and
  marks; ``repair_workers`` whether AutoRecovery daemons run and take marks. Without them no mark is a repair.
- ``judging``: how many published ledgers the query has not judged yet.
- ``stream``, ``report``: the stream as the application, the API and the command line see it.
- ``damages``, ``what_if``: reports of readers, and effects of a loss. They never lead to a change.
- ``findings_topic``: the findings for external consumers. Nothing in Trueup decides by it.

What must stay: no mark without the vote, and none for a ledger whose bookie is held. A crash at any point loses only
time. A change of the bytes in a bucket needs a new `query.FORM`.
"""
