"""The reads stream over a simulated cluster with faults, another client of the policies, and separate checkers."""
