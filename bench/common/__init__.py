"""Parts that all benchmarks share."""
