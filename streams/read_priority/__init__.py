"""The read priority of Pulsar's brokers, and the fallback to the other tier. Decisions: `state/read_priority/`.

It has no query: every pass observes policies and copies, decides, executes at most one change for each target, and
remembers it.

- ``observer``: topics and ledgers from ZooKeeper, policies from the admin API.
- ``copies``: whether a ledger can be read in full from either tier; a bounded number of checks in each pass.
- ``reconciler``: the passes. ``executor``: one change: read, compare, write, read back.
- ``stream``, ``report``: the stream as the application, the API and the command line see it.

What must stay: the admin API has no conditional write. So a policy that is not what it should be right before the write
is not overwritten, and a switch is taken back only while the policy is the one that Trueup wrote.
"""
