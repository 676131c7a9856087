"""The instances of one application, of which one leads; without section ha, there is one that may not take over.

They append signs of life to one topic, whose order decides, by the decisions of `state.instance.leadership`.
"""
