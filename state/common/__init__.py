"""Modules that all streams share: errors, options, patterns, life cycles.

Nothing here knows BookKeeper, Kafka, Pulsar or RocketMQ, except the names of systems in ``systems``.

- ``errors``: the tree of errors. The branch says what the caller does: retry, stop, or observe first.
- ``rules``, ``lifecycle``: the tables of verdicts and of stages that every stream has.
- ``options``: keys of settings, with bounds and documentation. ``patterns``: names in settings, as RE2 expressions.
  ``secrets``, ``tls``: keys that several sections have.
- ``block_store``, ``bucket_log``: how a bucket of a view is stored: appended to, and compacted now and then.
- ``arrays``, ``backoff``, ``counts``, ``token_bucket``: small helpers. Time is passed in.

A module belongs here if at least two subjects use it, and if it would make sense in a program about something else.
"""
