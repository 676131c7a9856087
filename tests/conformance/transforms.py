"""Transforms, as operators write them."""

from trueup.connectors.replication.transforms import Record


def even_shouted(record: Record) -> Record | None:
    """Converts values to capitals and drops records with an odd offset."""
    return None if record.offset % 2 else record._replace(value=(record.value or b"").upper())


def fail_at_five(record: Record) -> Record:
    if record.offset == 5:
        raise ValueError("no five")
    return record


def true_at_five(record: Record) -> object:
    return True if record.offset == 5 else record


def text_at_five(record: Record) -> object:
    return record._replace(value="five") if record.offset == 5 else record  # type: ignore[arg-type]
