"""The records to write at the target: unchanged with Trueup's headers, or the result of a transform."""

from collections.abc import Iterable, Iterator
from itertools import chain, compress, repeat
from operator import itemgetter
from typing import NamedTuple, cast

from confluent_kafka import Message

from trueup.connectors.contract import Lease
from trueup.connectors.replication.headers import MARK, Headers, Path, marks, prefix_of
from trueup.connectors.replication.transforms import Attempt, Record, Transform, entry_point
from trueup.state.replication.provenance import HEADER, Refill

Row = tuple[bytes | None, bytes | None, int, Headers]
"""Value, key, timestamp in ms, headers."""


class Rewritten(NamedTuple):
    """Records of one partition, ready to write: source offsets, columns with as many rows, which can be read once, and
    the number of omitted records by reason."""

    offsets: list[int]
    values: Iterable[bytes | None]
    keys: Iterable[bytes | None]
    stamps: Iterable[int]
    headers: Iterable[Headers]
    size: int
    dropped: int
    filtered: int

    def rows(self) -> Iterator[Row]:
        """The rows, one by one."""
        return zip(self.values, self.keys, self.stamps, self.headers, strict=True)


_FIRST, _SECOND = itemgetter(0), itemgetter(1)


class Broken(Exception):  # noqa: N818
    """The transform raised an exception; the text has the reason."""


class Rewriter:
    """Creates rows from records for one lease."""

    def __init__(self, lease: Lease) -> None:
        ends = lease.source, lease.target, lease.forward
        self._path = Path(*ends)
        self._again = {held: Path(*ends, held) for held in (True, False)}
        self._refills = {
            prefix_of(lease.writer_id, a.source): a.refill for a in lease.assignments if a.refill is not None
        }
        self._transform: Transform | None = None
        if lease.transform:
            self._transform = entry_point(lease.transform, f"links.{lease.link}.transform")

    def many(self, prefix: bytes, messages: list[Message]) -> Rewritten:
        """The rows of ``messages`` of one partition. Raises `Broken`."""
        offsets = cast("list[int]", list(map(Message.offset, messages)))
        headers, dropped = self._tagged(prefix, messages, offsets)
        if dropped:
            kept = [each is not None for each in headers]
            messages, offsets = list(compress(messages, kept)), list(compress(offsets, kept))
            headers = list(compress(headers, kept))
        stamps = map(_SECOND, map(Message.timestamp, messages))
        columns = map(Message.value, messages), map(Message.key, messages), stamps, cast("list[Headers]", headers)
        shaped = Rewritten(offsets, *columns, sum(map(len, messages)), dropped, 0)
        return shaped if self._transform is None else self._transformed(messages, shaped)

    def one(self, prefix: bytes, message: Message) -> Rewritten:
        """The same for a single record. Raises `Broken`."""
        return self.many(prefix, [message])

    def _transformed(self, messages: list[Message], shaped: Rewritten) -> Rewritten:
        made = [self._made(message, row) for message, row in zip(messages, shaped.rows(), strict=True)]
        left = [row for row in made if row is not None]
        offsets = [offset for offset, row in zip(shaped.offsets, made, strict=True) if row is not None]
        values, keys, stamps, headers = zip(*left, strict=True) if left else repeat((), 4)
        size = sum(map(len, filter(None, values)))
        return Rewritten(offsets, values, keys, stamps, headers, size, shaped.dropped, len(made) - len(left))

    def _tagged(self, prefix: bytes, messages: list[Message], offsets: list[int]) -> tuple[list[Headers | None], int]:
        """Headers with Trueup's, None for records that are not copied, and the number of these."""
        found = [each or [] for each in cast("Iterable[Headers | None]", map(Message.headers, messages))]
        ours = marks(prefix, offsets)
        refill = self._refills.get(prefix)
        again = refill is not None and offsets[0] < refill.until
        if again or self._transform or HEADER in map(_FIRST, chain.from_iterable(found)):
            rows = zip(offsets, found, ours, strict=True)
            tagged = [self._path_of(refill, offset).tagged(headers, mark) for offset, headers, mark in rows]
            return tagged, tagged.count(None)
        for headers, mark in zip(found, ours, strict=True):
            headers += (self._path.source_header, mark)
        return cast("list[Headers | None]", found), 0

    def _path_of(self, refill: Refill | None, offset: int) -> Path:
        return self._path if refill is None or offset >= refill.until else self._again[offset < refill.held]

    def _made(self, message: Message, row: Row) -> Row | None:
        """The transform's result for a record; the last two headers are Trueup's and hidden from the transform."""
        made: Record | None = None
        assert self._transform is not None, "asked only with a transform"
        with Attempt() as attempt:
            made = self._transform(record_of(message))
        if attempt.error:
            raise Broken(f"the transform failed: {attempt.error}")
        if made is None:
            return None
        ours = {HEADER, MARK}
        return made.value, made.key, made.timestamp, [
            *(h for h in made.headers if h[0] not in ours), *(h for h in row[3] if h[0] in ours),
        ]  # fmt: skip


def record_of(message: Message) -> Record:
    """A message in the form that operators' code receives."""
    return Record(
        message.topic() or "", message.partition() or 0, message.offset() or 0, message.timestamp()[1],
        message.key(), message.value(), cast("tuple[tuple[str, bytes | None], ...]", tuple(message.headers() or ())),
    )  # fmt: skip
