"""Benchmarks of Trueup and of existing programs on real servers: `python -m bench.placement`."""
