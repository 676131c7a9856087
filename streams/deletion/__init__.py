"""The deletion stream.

Three sources of deletions share one loop: the view of ledgers and owners, listings of tiered storage, and the orders of
an operator. The decisions are those of `state.deletion`.

- ``query``: ledgers and nodes of owners in, one packed row for each bucket of owners out.
- ``reconciler``: the loop. A deletion is in the journal before anything is deleted, and stays there until every place
  that stored a part of it confirms that it is gone.
- ``target``: what the loop deletes, as a protocol. ``owners`` implements it for ledgers of Pulsar, ``orphan_objects``
  for objects in tiered storage, and ``manual`` for ledgers that an operator names.
- ``stream``, ``report``: the stream as the application, the API and the command line see it.

What must stay: a deletion cannot be undone. So the owner is read again right before the deletion, and the version of
the metadata is a condition of it. A ledger of an owner that cannot be read is not deleted. An order with an unknown
result is observed before it is repeated.
"""
