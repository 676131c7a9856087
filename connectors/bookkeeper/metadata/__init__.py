"""Ledger metadata, racks and bookies from ZooKeeper.

- ``capture``: watches one cluster and publishes all changes. ``feeds``: what it knows of ledgers, marks and bookies.
- ``queries``: traversals and bulk reads. ``layout``: paths and ledger ids, in both directions.
- ``metadata``: one znode, in every version of the format. ``bulk``: thousands of znodes with numpy; what it cannot read
  it leaves to ``metadata``, which decides. ``protobuf_columns`` is its parser.
- ``mark_codec``: marks, locks and votes as text. ``addresses``: bookies by registration or id.
- ``racks``, ``rack_source``: the rack of each bookie, as BookKeeper sees it. Rack maps may block.
- ``published``: the version of each ledger that was published.

What must stay: a znode with unknown bytes is an unreadable ledger, never none. The two readers agree on every input;
tests compare them with BookKeeper's classes.
"""
