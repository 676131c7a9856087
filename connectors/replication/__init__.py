"""Replication between log systems: the ports that a system implements, and what is built on them alone."""
