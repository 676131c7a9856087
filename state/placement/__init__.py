"""Whether the replicas of a ledger span enough racks, and which repairs are necessary.

What enters: ledgers (`state.bookkeeper.ledgers.Ledgers`), the topology with its policy, and marks, each a full value
with a version. What leaves: findings (`view.FINDING`), and a `board.RepairPlan`. Spark and ZooKeeper are elsewhere:
`streams.placement` stores the buckets, and writes the marks.

Read in this order:

1. ``rules``: the verdicts that exist, in words. ``settings``: the section of the configuration.
2. ``verdicts``: the step from columns of ledgers to one rule for each ledger. ``policy`` judges the fragments.
3. ``view``: one bucket of ledgers. A batch of records is folded in, and the findings that changed come out.
4. ``board``: the findings of all buckets, and which of them may be repaired now.
5. ``lifecycle``: the stages of one repair, as a table; ``repairs`` moves them through it by observations only.

``isolation`` corrects the rules of ledgers that are placed by isolation groups.
``progress`` and ``readiness`` say how many ledgers wait for their verdict, so that counts are not taken for complete.
``evidence`` explains one verdict, and ``what_if`` computes the effect of a loss; neither leads to an action. ``damage``
has the reports of readers, which never lead to a change of the cluster.

``policy`` is BookKeeper's own arithmetic, and can be skipped.

Rules are stored by their position in the table: append, never reorder. A change of what a bucket stores (``view``,
``state.bookkeeper.ledgers``, ``policy.fencing``) needs a new `streams.placement.query.FORM`: the view is built again.
"""
