"""What a journal in memory returns of records that were written to it."""

from typing import Any

from trueup.streams.journal.codec import checked, encode


def formed(what: str, key: bytes, value: Any) -> Any:
    """A record, or its body, as a reader of its topic receives it; None for a deletion."""
    if value is None:
        return None
    return checked(what, key, value if isinstance(value, bytes) else encode(what, value), what)


def newest(what: str, records: dict[bytes, Any]) -> dict[bytes, Any]:
    """`Journal.newest` of these records of a topic."""
    return {key: formed(what, key, value) for key, value in records.items() if value is not None}
