"""Benchmarks of links between RocketMQ clusters."""
