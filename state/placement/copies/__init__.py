"""Where Trueup itself would put the replicas of a ledger: which places of its fragments get another bookie.

- ``search``: the fewest places of one fragment, so that it has no lost member and adheres to the policy.
- ``targets``: the bookies for all fragments of one ledger, by free space.

What enters: the metadata of a ledger, the topology, the bookies that may refuse the ledger, and how full bookies are.
What leaves: moves, each of which a copy can execute.
"""
