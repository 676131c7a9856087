"""Ledgers and objects that nothing references, and when they may be deleted.

What enters: ledgers with the owner that their metadata name, and the nodes of owners (Pulsar's managed ledgers,
cursors, schemas) with the ledgers that they list. What leaves: unreferenced ledgers with their rule, and the deletions
that are due.

Read in this order:

1. ``rules``: the verdicts that exist, in words.
2. ``owners``: what a ledger claims and what a node references, and when either is unknown.
3. ``verdicts``: the difference of both sides in one bucket of owners.
4. ``view``: one bucket. A batch of records is folded in; all answers together are `view.agreed`.
5. ``lifecycle``: the stages of one deletion, as a table. It ends when every bookie of any of its ensembles says so.

``owned_ledgers`` has the columns of the view. ``offloads`` and ``orphan_objects`` do the same for tiered storage, for
the objects of offload attempts. ``settings`` and ``stores`` are the sections of the configuration.

What must stay: a ledger with an unknown owner, and one whose owner cannot be read, is never unreferenced. The absence
of an owner's node leads to a report only. Every action is recorded before it is executed.

A change of what a bucket stores (``owned_ledgers``, ``view``) needs a new `streams.deletion.query.FORM`.
"""
