"""Placement beside BookKeeper's own Auditor: `python -m bench.placement`."""
