"""The ZooKeeper client for all connectors: recursive watches, bulk reads, fast resynchronisation.

It extends kazoo, which opens the sessions and logs in.

- ``client``: a session: calls with Trueup's errors, recursive watches, bulk reads. ``session``: one by the settings.
- ``connection``: zxids of responses and events, and many frames for each system call.
- ``requests``: requests that kazoo lacks. ``errors``: its errors as Trueup's. ``security``: login and TLS.
- ``watch``: events of a recursive watch, and the part of history that they cover.
- ``follower``: keeps session and watch across losses, step by step.
- ``history``: whether a server has the history that was observed before.
- ``fence``: a znode whose version stands for the epoch of a leader.

What must stay: an event that was lost is noticed. After every loss of the watch, everything is read again.
"""
