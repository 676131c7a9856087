"""The instances of one application: which of them leads, and whether the journal is the one that they wrote.

- ``leadership``: the election, as a function of the records of a log with one partition. What enters: records in their
  order, and seconds of the instance's own clock. What leaves: the role of the instance, and until when it may act. Its
  docstring has the argument why two instances never act at the same time. An application without section ha takes part
  as one that may not take over.
- ``journal_topics``: what enters are the topics as the brokers report them, and as they were in earlier runs. What
  leaves are problems in words: topics that expire, that were replaced, or that lost their oldest records.

`streams.instance` sends and reads the records, and ends the process of an instance that lost its place.

What must stay: only durations are compared, each measured by one instance. A record that this instance cannot have
written at this time is not believed (`leadership.Sign.possible`), because other applications can write to the topic.
"""
