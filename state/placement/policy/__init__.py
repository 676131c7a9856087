"""BookKeeper's own arithmetic: which fragments adhere, which bookies its workers choose, and which ledgers they fence.

Each module names the class of BookKeeper whose rule it is; tests compare it with that class. Read this
package to change that; the decisions of Trueup are in the package above.

What enters: rings of members as codes, and the topology. What leaves: a rule for each ring (``fragments``), how certain
a repair is (``replacement``), and the bookies that may refuse a ledger (``fencing``). Nothing here knows a mark, a
repair or the time, except ``fencing``, whose pairs of ledger and bookie begin and end at given times.

``fragments`` and ``replacement`` are about racks (`RackawareEnsemblePlacementPolicy`). ``zones`` and ``regions`` judge
rings under the other two policies, whose workers repair no placement.

Read in this order:

1. ``bookie_classes``: bookies that no rule distinguishes are one class, so that rings become short patterns.
2. ``fragments``: the rule of adherence, and the reason if nothing can be done.
3. ``replacement``: the ensembles that a worker can form. It follows every outcome of the random choices of
   ``ring_walk``, which is the walk of BP-54 around one ring.
4. ``fencing``: what a bookie remembers of ledgers that it held before.
5. ``groups``: the bookies in which Pulsar's class places a ledger of an isolation group. ``declared``: the policy of
   the settings.
6. ``adherence``: the three answers about a ring, and what the windows of a ring have in common.
7. ``zones``: the answer of BookKeeper about zones and upgrade domains.
8. ``regions``: what BookKeeper guarantees of new ensembles under regions, since its own answer is a constant.
   ``places``: zones and regions of the bookies of a topology, for ``fragments``.

Two properties must stay: a verdict depends on the ring and the topology only, and an attempt is called certain only if
every outcome succeeds. `fencing.FormerMembers` is stored in the buckets of the view; see the package above.
"""
