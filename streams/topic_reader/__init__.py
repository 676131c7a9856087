"""Reads of topics without a broker, from BookKeeper and tiered storage.

This is no stream: `trueup read` and the Spark data source use it, also while no application runs. It changes nothing.
Ledgers are not fenced, and cursors do not move.

- ``topics``: opens the clusters of a configuration. ``limits``: where a read begins and ends.
- ``reader``: the messages of topics in order, each with the tier that served it.
- ``fallback``: one part of a ledger from the preferred tier, and from the other one where that fails.
- ``sources``: the two tiers: bookies and object stores. ``schemas``: the versions of a topic's schema.
- ``damage_report``: tells a running application which replicas were damaged. It never stops a read.
- ``spark``: the data source, for batches and streams.

What must stay: an entry that no tier has is an error or counted as skipped, never left out silently. The checksum of
every entry that has one is verified.
"""
