"""Benchmarks of reads of Pulsar's topics."""
