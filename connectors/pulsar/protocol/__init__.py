"""Formats of Pulsar's entries: headers, metadata, batches, chunks."""
