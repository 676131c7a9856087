"""The bookie protocol: connections, reads of entries, the admin API.

All requests are read-only, and none fences a ledger.

- ``connection``, ``frames``, ``codes``: one connection, its frames, and the codes of both encodings as errors.
- ``admin_calls``: single requests in the third encoding. ``bulk_reads``: many entries in the second one.
- ``entries``: entries as they are stored, and the digests that protect them.
- ``reader``: a ledger from its bookies: every entry is verified, and read from another replica if necessary.
- ``replica_check``: a sample from one bookie only. ``striping``: which bookies hold which entries.
- ``ledger_access``, ``security``: what a read needs of the metadata and of the settings.
"""
