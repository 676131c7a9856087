"""What every stream runs on: the Spark session, the supervisor, metrics, logs, health.

- ``stream``: what a stream offers, and the rows that all streams report. ``descriptor``: its entry in
  `streams.catalog`. Begin with these two.
- ``context``: what a stream receives. ``supervisor``: threads and queries; it alone catches every error, and restarts.
- ``approvals``: which actions of the plan an operator approved.
- ``fields``: the status. ``metrics``, ``signs``, ``trends``: numbers, health, and charts. ``checks``: `trueup doctor`.
- ``logs``, ``format``, ``headers``, ``named``: small parts that several packages need.
- ``warm``: queries that a standby runs. ``spark``: the session and its queries. ``process``: the process itself.

What must stay: no loop or query of one stream ends another. An error that nobody expected restarts its part, with
back-off, and is shown.
"""
