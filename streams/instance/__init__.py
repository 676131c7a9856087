"""The instances of one application: one without section ha is alone, and with it they elect a leader.

Both protocols append signs of life to one topic, whose order decides. The decisions on the leader are those of
`state.instance.leadership`.
"""
