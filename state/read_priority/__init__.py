"""Reads of topics from BookKeeper and tiered storage: priorities, and the tier that serves a ledger.

Two programs use this package. The stream in `streams.read_priority` keeps the read priority of Pulsar's brokers
(PIP-73) as it is declared, and switches a topic whose tier fails. The data source in `streams.topic_reader` reads
topics without a broker.

The stream: what enters is one pass over namespaces and topics (``view``), the settings, and what is remembered. What
leaves are findings, and at most one change for each target.

1. ``policies``: which level sets the priority of a topic, as a broker merges them, in each version.
2. ``copies``: what is known of the copies of a ledger in both tiers.
3. ``verdicts``: how a broker reads the ledgers of a topic with one priority.
4. ``plan``: the changes that are due. ``lifecycle``: the stages of one change, as a table.

``rules`` has the verdicts in words, and ``settings`` the section of the configuration.

The data source: ``positions`` and ``offsets`` are places in a topic and ranges between them, and ``tiers`` is the order
in which the tiers of a ledger are tried.

What must stay: a copy that was not checked is unknown, and no priority is changed for it. A topic is switched back to
what it had, and only while nobody else changed its policy.
"""
