"""Formats of RocketMQ: remoting frames, stored messages, batches, properties, compressed bodies."""
