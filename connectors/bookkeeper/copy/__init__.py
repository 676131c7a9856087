"""Copies closed ledgers to other bookies, and changes their metadata. Everything else only reads from bookies.

One process locks a ledger, plans what is copied, and changes the metadata at the end. Others can copy the entries.

- ``ledger_copy``: a locked ledger with its stripes, from its lock to its change. ``ledger_lock``, ``ledger_source``,
  ``members``: the lock with the guarded change, the metadata under the lock, and the metadata after the change.
- ``remote_copy``: the copy of one stripe by a process that does not hold the lock.
- ``stripes``, ``adds``: what is written to a bookie and read back; the connection for entries.

A crash at any point leaves at most entries on a bookie that no metadata name. The bookie collects them.
"""
