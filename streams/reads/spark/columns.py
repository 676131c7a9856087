"""Messages to Arrow record batches, column by column."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trueup.connectors.pulsar.protocol.message import Message
from trueup.state.reads.tiers import Tier
from trueup.streams.reads.spark.planner import EntryRange
from trueup.streams.reads.spark.values import Row, Values

ROWS, BYTES = 8_192, 8 << 20
"""A record batch is complete when it has this many messages, or values of this many bytes; the messages of the last
entry can be more."""
_LAST_MS = ((1 << 63) - 1) // 1_000
_FIELDS = {name: at for at, name in enumerate(Message._fields)}
Rows = Sequence[Message]


class Columns:
    """Builds record batches with these columns for one range."""

    def __init__(self, schema: pa.Schema, wanted: EntryRange, values: Values) -> None:
        self._schema, self._values, self._topic = schema, values, str(wanted.topic)
        self._same = {"topic": str(wanted.topic), "partition": wanted.topic.partition, "ledger": wanted.ledger}

    def batches(self, found: Iterable[tuple[Rows, Tier]]) -> Iterator[pa.RecordBatch]:
        """Record batches of these messages, in order, of one tier each."""
        rows: list[Message] = []
        size, last = 0, None
        for some, tier in found:
            if rows and (tier is not last or len(rows) >= ROWS or size >= BYTES):
                yield self._batch(rows, last)
                rows, size = [], 0
            last = tier
            rows += some
            size += sum([len(one.value or b"") for one in some])
        if rows:
            yield self._batch(rows, last)

    def _batch(self, rows: list[Message], tier: Tier | None) -> pa.RecordBatch:
        same = {**self._same, "tier": str(tier)}
        made = []
        for field in self._schema:
            if field.name in same:
                made.append(pa.repeat(pa.scalar(same[field.name], field.type), len(rows)))
            elif field.name == "value" and self._values.typed:
                made.append(self._values.column(self._rows(rows), field.type))
            else:
                made.append(_BUILD[field.name](rows, field.type))
        return pa.RecordBatch.from_arrays(made, schema=self._schema)

    def _rows(self, rows: Rows) -> list[Row]:
        at = f"the value of {self._topic}, "
        return [Row(one.value, one.encrypted, one.schema_version, f"{at}{one.ledger}:{one.entry}") for one in rows]


Build = Callable[[Rows, Any], Any]


def _column(rows: Rows, name: str) -> list[Any]:
    return list(map(itemgetter(_FIELDS[name]), rows))


def _plain(name: str) -> Build:
    return lambda rows, kind: pa.array(_column(rows, name), kind)


def _text(name: str) -> Build:
    return lambda rows, kind: _texts(_column(rows, name), kind)


def _texts(found: Sequence[str | None], kind: Any) -> Any:
    try:
        return pa.array(found, kind)
    except UnicodeEncodeError:  # surrogate escapes
        raw = [None if text is None else text.encode(errors="surrogateescape") for text in found]
        return pa.array([None if one is None else one.decode(errors="replace") for one in raw], kind)


def _time(name: str) -> Build:
    """Times in ms; 0 is none. Neither are times that Spark cannot represent."""

    def build(rows: Rows, kind: Any) -> Any:
        ms = np.array(_column(rows, name), np.int64)
        return pa.array(ms * 1_000, kind, mask=(ms <= 0) | (ms > _LAST_MS))

    return build


def _ids(rows: Rows, kind: Any) -> Any:
    """Message ids, LEDGER:ENTRY or LEDGER:ENTRY:BATCH-INDEX."""
    parts = [pa.array(_column(rows, name), pa.int64()).cast(kind) for name in ("ledger", "entry")]
    index = pa.array(_column(rows, "batch_index"), pa.int64())
    entry = pc.binary_join_element_wise(*parts, ":")
    return pc.if_else(pc.less(index, 0), entry, pc.binary_join_element_wise(entry, index.cast(kind), ":"))


def _properties(rows: Rows, kind: Any) -> Any:
    """Maps; of a repeated name the last value applies, as in Pulsar's client (MessageImpl.getProperties)."""
    found = _column(rows, "properties")
    pairs = [tuple(dict(each).items()) if len(each) > 1 else each for each in found] if any(found) else found
    bounds = np.zeros(len(pairs) + 1, np.int32)
    np.cumsum([len(each) for each in pairs], out=bounds[1:])
    flat = list(chain.from_iterable(pairs))
    names, values = ([one[at] for one in flat] for at in (0, 1))
    return pa.MapArray.from_arrays(
        pa.array(bounds), _texts(names, kind.key_type), _texts(values, kind.item_type), type=kind
    )


_BUILD: dict[str, Build] = {
    **{name: _plain(name) for name in (
        "entry", "batch_index", "key", "ordering_key", "value", "sequence", "schema_version", "encrypted",
    )},
    "producer": _text("producer"),
    "publish_time": _time("publish_ms"),
    "event_time": _time("event_ms"),
    "message_id": _ids,
    "properties": _properties,
}  # fmt: skip
