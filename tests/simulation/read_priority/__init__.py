"""The read priority stream over a simulated cluster with faults, another client of the policies, and checkers."""
