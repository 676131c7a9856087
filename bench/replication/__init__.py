"""Links compared with MirrorMaker 2: `python -m bench.replication`."""
