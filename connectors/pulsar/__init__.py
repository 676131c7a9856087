"""Pulsar's metadata in ZooKeeper: references to ledgers, and the guarded deletion of a ledger.

- ``layout``, ``nodes``: which nodes reference ledgers, and the references of one. ``queries``: traversals.
- ``metadata``: the formats of these nodes. ``compressed``, ``codecs``, ``messages``: compression and protobuf of them.
- ``capture``: watches the nodes and publishes all changes.
- ``guarded_delete``: deletes a ledger in a transaction that verifies that its owner did not change.
- ``topics``, ``namespaces``, ``partitioned``, ``schemas``: names, lists and schemas, by Pulsar's own rules.
- ``offload_index``, ``offload_read``, ``offload_verify``, ``orphan_objects``: the objects of offloaded ledgers.

``admin`` is the REST API of brokers, ``protocol`` the formats of entries.

What must stay: an owner whose node is not understood keeps every ledger that it may have.
"""
