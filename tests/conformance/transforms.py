"""Operators' code: what is written for a record."""

from trueup.connectors.replication.transforms import Record


def even_shouted(record: Record) -> Record | None:
    """Values in capitals; records with an odd offset are left out."""
    return None if record.offset % 2 else record._replace(value=(record.value or b"").upper())


def fail_at_five(record: Record) -> Record:
    if record.offset == 5:
        raise ValueError("no five")
    return record
