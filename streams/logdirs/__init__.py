"""The log directory stream.

It has no query: every pass observes the brokers, decides (`state.logdirs`), executes what the mode permits, and
reports. The next pass confirms. Each cluster has a loop of its own.

- ``manager``: all clusters of section logdirs. ``reconciler``: the passes of one of them.
- ``executor``: the changes on one broker. Each is in the journal before it is sent, so that another process can revert
  it.
- ``stream``, ``report``: the stream as the application, the API and the command line see it.

What must stay: cordons and throttles of other clients are not touched; those of Trueup are removed as soon as they are
not needed, in every mode. A move that a broker forgot is planned again, and never assumed to be done.

It is the smallest stream: begin here to see what a stream consists of.
"""
