"""The replication stream.

Each link is one streaming query. No record passes through Spark: the micro-batches are rounds of leases, and each task
copies during its lease. The decisions are those of `state.replication`, the copiers are in `connectors`.

- ``query``: rounds: leases out to the tasks, results back. ``leases``: progress while a lease runs, through a topic.
- ``clusters``: which systems links connect, and which module copies between two of them. Nothing else names a system.
- ``manager``: all links, and the commands of operators. ``report``: their rows for the API.
- ``stream``: the stream as the application sees it.
- ``links``: one running link.

What must stay: a position is in the journal before the next round begins. What the journal does not have, the next
copier finds at the target; so a lost report costs time, and no record.
"""
