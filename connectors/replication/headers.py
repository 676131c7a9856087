"""The headers that the records path adds: the path of a record, and its source offset.

``trueup-source`` contains the clusters passed, as in ``east#0,west#1`` (state/replication/provenance.py).
``trueup-offset`` has 16 bytes: 8 for writer id and source partition (`prefix_of`), then the source offset as big-endian
int64. Thus the newest record of a source partition can be found in a target partition that several links and topics
write to. A record has one of each: those of an earlier hop are replaced. All other headers are kept in their order.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import repeat
from typing import cast

from trueup.connectors.contract import Endpoint, LogId
from trueup.connectors.replication.remembered import BoundedCache
from trueup.state.replication.provenance import HEADER, onward, path_with, refilled, token_of, tokens_bytes, tokens_of

MARK = "trueup-offset"
_PLACE = struct.Struct(">8sq")
Header = tuple[str, str | bytes | None]
"""Headers in confluent-kafka's form; the values that it reads are bytes or None."""
Headers = list[Header]


def prefix_of(writer_id: int, source: LogId) -> bytes:
    """8 bytes for a source partition and a writer id. A topic's name contains no slash, so the hashed texts are
    distinct."""
    return blake2b(f"{writer_id}/{source.path}/{source.number}".encode(), digest_size=8).digest()


def marks(prefix: bytes, offsets: Iterable[int]) -> Iterator[Header]:
    """The mark of each record."""
    return zip(repeat(MARK), map(_PLACE.pack, repeat(prefix), offsets), strict=False)


def mark_of(headers: Sequence[Header] | None) -> tuple[bytes, int] | None:
    """Prefix and source offset in a record's mark; None if it has no mark, or an invalid one."""
    for name, value in headers or ():
        if name == MARK and isinstance(value, bytes) and len(value) == 16:
            return value[:8], int.from_bytes(value[8:], "big")
    return None


class Path:
    """The transformation of the header `HEADER` from ``source`` to ``target``. ``held``: whether the target had the
    records before the refill (`state.replication.provenance.Refill`); None: the records are not refilled."""

    def __init__(self, source: Endpoint, target: Endpoint, forward: bool, held: bool | None = None) -> None:
        self._ends, self._forward, self._held = (source, target), forward, held
        self._known = BoundedCache[bytes | None, bytes | None]()
        self.source_header = (HEADER, self.onward(b"") or b"")

    def onward(self, value: bytes | None) -> bytes | None:
        """The header's next value; None: the record must not be copied. Usually few values occur."""
        if value in self._known:
            return self._known[value]
        passed = self._passed(tokens_of(value))
        return self._known.keep(value, len(value or b""), None if passed is None else tokens_bytes(passed))

    def _passed(self, tokens: Sequence[str]) -> tuple[str, ...] | None:
        (source, target), before = (end.bit for end in self._ends), path_with(tokens) if tokens else None
        if self._held is None:
            after = onward(before, source, target, self._forward)
        else:
            after = refilled(before, source, target, self._forward, self._held)
        if after is None:
            return None
        added = after & ~(before or 0)
        return (*dict.fromkeys(tokens), *(token_of(end.name, end.bit) for end in self._ends if added >> end.bit & 1))

    def tagged(self, headers: Sequence[Header], mark: Header) -> Headers | None:
        """A record's headers with Trueup's, which replace those of an earlier link; None: drop the record."""
        for name, content in headers:
            if name == HEADER:
                passed = self.onward(cast("bytes | None", content))
                if passed is None:
                    return None
                return [*(h for h in headers if h[0] not in (HEADER, MARK)), (HEADER, passed), mark]
        return [*headers, self.source_header, mark]
