"""A journal in memory, and what a journal returns of records that were written to it."""

from collections.abc import Iterable
from typing import Any

from trueup.state.common.errors import Retry
from trueup.streams.journal.codec import checked, encode


def formed(what: str, key: bytes, value: Any) -> Any:
    """A record, or its body, as a reader of its topic receives it; None for a deletion."""
    if value is None:
        return None
    return checked(what, key, value if isinstance(value, bytes) else encode(what, value), what)


def newest(what: str, records: dict[bytes, Any]) -> dict[bytes, Any]:
    """`Journal.newest` of these records of a topic."""
    return {key: formed(what, key, value) for key, value in records.items() if value is not None}


class FakeJournal:
    """Keeps the newest record of each key, as compacted topics do. While it is ``down``, every put fails."""

    def __init__(self) -> None:
        self.taken: dict[tuple[str, bytes], Any] = {}
        self.puts: list[list[Any]] = []
        """The values of each put."""
        self.down = False

    def put(self, records: Iterable[tuple[str, bytes, Any]], _within_s: float = 0.0) -> None:
        if self.down:
            raise Retry("acknowledged records", "none", "try again")
        made = {(what, key): value for what, key, value in records}
        self.taken |= made
        self.puts.append([*made.values()])

    def newest(self, what: str, _problems: object = None) -> dict[bytes, Any]:
        return newest(what, {key: value for (topic, key), value in self.taken.items() if topic == what})
