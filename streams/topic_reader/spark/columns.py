"""Messages to Arrow record batches, column by column."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trueup.connectors.pulsar.protocol.message import Message
from trueup.connectors.pulsar.protocol.rows import MessageRows as Together
from trueup.state.read_priority.tiers import Tier
from trueup.streams.topic_reader.spark.planner import EntryRange
from trueup.streams.topic_reader.spark.row_columns import column, times, values
from trueup.streams.topic_reader.spark.values import ValueRow, Values

ROWS, BYTES = 8_192, 8 << 20
"""A record batch is complete when it has this many messages, or values of this many bytes; the messages of the last
entry can be more."""
LARGEST = 1 << 16
"""Maximum number of rows of a record batch."""
_FIELDS = {name: at for at, name in enumerate(Message._fields)}
Rows = Sequence[Message]


class OutputColumns:
    """Builds record batches with these columns for one range."""

    def __init__(self, schema: pa.Schema, entries: EntryRange, values: Values) -> None:
        self._schema, self._values, self._topic = schema, values, str(entries.topic)
        self._same = {"topic": str(entries.topic), "partition": entries.topic.partition, "ledger": entries.ledger}

    def batches(self, groups: Iterable[tuple[Together | list[Message], Tier]]) -> Iterator[pa.RecordBatch]:
        """Record batches of these messages, in order, of one tier each."""
        rows: list[Message] = []
        size, last = 0, None
        for some, tier in groups:
            if rows and (tier is not last or len(rows) >= ROWS or size >= BYTES):
                yield self._batch(rows, last)
                rows, size = [], 0
            if isinstance(some, Together):
                if rows:
                    yield self._batch(rows, last)
                    rows, size = [], 0
                yield from self._together(some, tier)
                continue
            last = tier
            rows += some
            size += sum([len(message.value or b"") for message in some])
        if rows:
            yield self._batch(rows, last)

    def _batch(self, rows: list[Message], tier: Tier | None) -> pa.RecordBatch:
        def build(name: str, kind: pa.DataType) -> pa.Array:
            if name == "value" and self._values.typed:
                return self._values.column(self._rows(rows), kind)
            return _BUILD[name](rows, kind)

        return self._built(build, len(rows), tier)

    def _together(self, rows: Together, tier: Tier) -> Iterator[pa.RecordBatch]:
        def build(name: str, kind: pa.DataType) -> pa.Array:
            if name == "value" and self._values.typed:
                return self._values.column(self._rows_of(rows), kind)
            if name == "message_id":
                return _ids([pa.array(numbers) for numbers in (ledger, rows.entry, rows.batch_index)], kind)
            return column(name, rows, kind)

        count = len(rows.at)
        ledger = np.full(count, self._same["ledger"])
        if count:
            batch = self._built(build, count, tier)
            yield from (batch.slice(at, LARGEST) for at in range(0, count, LARGEST))

    def _built(self, build: Callable[[str, pa.DataType], pa.Array], count: int, tier: Tier | None) -> pa.RecordBatch:
        same = {**self._same, "tier": str(tier)}
        arrays = [
            pa.repeat(pa.scalar(same[field.name], field.type), count)
            if field.name in same
            else build(field.name, field.type)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _rows_of(self, rows: Together) -> list[ValueRow]:
        versions = column("schema_version", rows, pa.binary()).to_pylist()
        triples = zip(values(rows).to_pylist(), versions, rows.entry.tolist(), strict=True)
        at = f"the value of {self._topic}, {self._same['ledger']}:"
        return [ValueRow(value, False, version, f"{at}{entry}") for value, version, entry in triples]

    def _rows(self, rows: Rows) -> list[ValueRow]:
        at = f"the value of {self._topic}, "
        return [ValueRow(row.value, row.encrypted, row.schema_version, f"{at}{row.ledger}:{row.entry}") for row in rows]


Build = Callable[[Rows, pa.DataType], pa.Array]


def _column(rows: Rows, name: str) -> list[Any]:
    return list(map(itemgetter(_FIELDS[name]), rows))


def _plain(name: str) -> Build:
    return lambda rows, kind: pa.array(_column(rows, name), kind)


def _text(name: str) -> Build:
    return lambda rows, kind: _texts(_column(rows, name), kind)


def _texts(texts: Sequence[str | None], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(texts, kind)
    except UnicodeEncodeError:  # surrogate escapes
        raw = [None if text is None else text.encode(errors="surrogateescape") for text in texts]
        return pa.array([None if encoded is None else encoded.decode(errors="replace") for encoded in raw], kind)


def _time(name: str) -> Build:
    return lambda rows, kind: times(np.array(_column(rows, name), np.int64), kind)


def _ids(numbers: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    """Message ids, LEDGER:ENTRY or LEDGER:ENTRY:BATCH-INDEX, from these three columns."""
    ledger, entry, index = numbers
    whole = pc.binary_join_element_wise(ledger.cast(kind), entry.cast(kind), ":")
    return pc.if_else(pc.less(index, 0), whole, pc.binary_join_element_wise(whole, index.cast(kind), ":"))


def _message_ids(rows: Rows, kind: pa.DataType) -> pa.Array:
    return _ids([pa.array(_column(rows, name), pa.int64()) for name in ("ledger", "entry", "batch_index")], kind)


def _properties(rows: Rows, kind: pa.DataType) -> pa.Array:
    """Maps; of a repeated name the last value applies, as in Pulsar's client (MessageImpl.getProperties)."""
    maps = _column(rows, "properties")
    pairs = [tuple(dict(group).items()) if len(group) > 1 else group for group in maps] if any(maps) else maps
    bounds = np.zeros(len(pairs) + 1, np.int32)
    np.cumsum([len(group) for group in pairs], out=bounds[1:])
    flat = list(chain.from_iterable(pairs))
    names, values = ([pair[at] for pair in flat] for at in (0, 1))
    return pa.MapArray.from_arrays(
        pa.array(bounds), _texts(names, kind.key_type), _texts(values, kind.item_type), type=kind
    )


_BUILD: dict[str, Build] = {
    **{
        name: _plain(name)
        for name in ("entry", "batch_index", "key", "ordering_key", "value", "sequence", "schema_version", "encrypted")
    },
    "producer": _text("producer"),
    "publish_time": _time("publish_ms"),
    "event_time": _time("event_ms"),
    "message_id": _message_ids,
    "properties": _properties,
}
