"""Trueup beside the programs that operators have today, on real servers: `python -m bench.placement`."""
