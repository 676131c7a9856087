"""The pure core: what a cluster looks like, what should be true of it, and what would make it so.

Nothing here does I/O, reads a clock or knows Spark. Time is a parameter, decisions are functions of
(view, policy, now), life cycles are tables.
"""
