"""Placement compared with BookKeeper's Auditor: `python -m bench.placement`."""
