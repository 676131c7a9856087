"""The pure core: models of the observed state, the desired state, and the decisions between them.

Modules in this package do no I/O, read no clock and do not import Spark. Time is a parameter, decisions are functions
of (view, policy, now), and life cycles are tables.
"""
