"""Ledgers, bookies and racks, as recorded in BookKeeper's metadata.

The streams of placement and deletion share these values. What enters: records of the connectors (``observations``),
with the version of the node that was read. What leaves: columns of ledgers, marks as columns, and one `Topology`.

- ``observations``: the records, in the shape of their Avro schemas. The newest version wins, in any order of arrival.
- ``isolation``: the isolation groups in custom metadata, as text.
- ``ledgers``: a set of ledgers in numpy columns, 46 bytes for each. All that runs for every ledger works on it.
- ``topology``: the bookies with rack and liveness, and the policy. A verdict is a function of ledger and topology.
- ``membership``: the step from sightings to the next topology. It decides when a bookie is lost, and holds a mass loss.
- ``marks``: under-replication marks and locks. ``repair_workers``: whether AutoRecovery takes them.

The life of a bookie is decided in ``membership.settle`` only. A hold stops actions, never observations.

Ledgers and the topology are stored in the buckets of the placement view. A change of their bytes needs a new
`streams.placement.query.FORM`.
"""
