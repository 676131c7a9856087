"""Links beside MirrorMaker 2: `python -m bench.replication`."""
