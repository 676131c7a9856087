"""Entries parsed together have the same messages as each on its own, for any content; damage is never accepted."""

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.property.codecs.test_pulsar_entries import CODEC, ENTRY, PAIRS, VALUE
from tests.unit.pulsar.pulsar_entries import Part, batched, encoded
from trueup.connectors.pulsar.protocol.attributes import decoded
from trueup.connectors.pulsar.protocol.entry import entry_of, layout_of
from trueup.connectors.pulsar.protocol.lockstep import UnusualError
from trueup.connectors.pulsar.protocol.message import messages_of
from trueup.connectors.pulsar.protocol.rows import EntryBytes, MessageRows, Span, rows_of
from trueup.state.common.errors import BadBytes

POSITIVE = st.integers(0, (1 << 63) - 1)
COMMON = {
    "partition_key": VALUE,
    "ordering_key": VALUE,
    "event_time": POSITIVE,
    "sequence_id": POSITIVE,
    "null_value": st.booleans(),
    "null_partition_key": st.booleans(),
    "partition_key_b64_encoded": st.booleans(),
    "properties": PAIRS,
}
SINGLE = st.fixed_dictionaries({}, optional={**COMMON, "compacted_out": st.booleans()})
WHOLE = st.fixed_dictionaries({}, optional={**COMMON, "schema_version": VALUE, "producer_name": VALUE})
BROKER = st.none() | st.fixed_dictionaries({}, optional={"broker_timestamp": POSITIVE, "index": POSITIVE})
OPTIONS = st.fixed_dictionaries({"codec": CODEC, "broker": BROKER, "checksum": st.booleans()})
LONG = st.integers(0, 20_000).map(lambda size: b"v" * size)
BATCH = st.builds(
    lambda parts, options, whole: batched(parts, **options, **whole),
    st.lists(st.tuples(VALUE | LONG, SINGLE), max_size=5),
    OPTIONS,
    WHOLE,
)
ALONE = st.builds(lambda value, options, whole: encoded(value, **options, **whole), VALUE | LONG, OPTIONS, WHOLE)


def held(entries: list[bytes]) -> EntryBytes:
    return EntryBytes(range(3, 3 + len(entries)), entries, [layout_of(data, "here") for data in entries])


def bytes_of(rows: MessageRows, span: Span, row: int) -> bytes | None:
    return rows.data[span.starts[row] : span.ends[row]] if span.there[row] else None


def pairs_of(rows: MessageRows, row: int) -> list[tuple[bytes | None, bytes | None]]:
    places = [at for at, owner in enumerate(rows.properties.rows.tolist()) if owner == row]
    return [(bytes_of(rows, rows.properties.names, at), bytes_of(rows, rows.properties.values, at)) for at in places]


def together(entries: list[bytes]) -> list[tuple[Any, ...]]:
    rows, found = rows_of(held(entries)), []
    for row, at in enumerate(rows.at.tolist()):
        key = bytes_of(rows, rows.key, row)
        key = decoded(key) if key is not None and rows.encoded[row] else key
        numbers = (rows.entry, rows.batch_index, rows.publish_ms, rows.event_ms, rows.sequence)
        found.append(
            (
                *(int(each[row]) for each in numbers),
                key,
                bytes_of(rows, rows.ordering_key, row),
                bytes_of(rows, rows.value, row),
                bytes_of(rows, rows.producer, at),
                bytes_of(rows, rows.schema_version, at),
                pairs_of(rows, row),
            )
        )
    return found


def alone(entries: list[bytes]) -> list[tuple[Any, ...]]:
    return [
        (
            m.entry,
            m.batch_index,
            m.publish_ms,
            m.event_ms,
            m.sequence,
            m.key,
            m.ordering_key,
            m.value,
            m.producer.encode(errors="surrogateescape"),
            m.schema_version,
            [tuple(text.encode(errors="surrogateescape") for text in pair) for pair in m.properties],
        )
        for at, data in enumerate(entries, 3)
        for m in messages_of(entry_of(memoryview(data), "here"), 7, at, "here")
    ]


@settings(max_examples=300)
@given(st.lists(BATCH | ALONE, min_size=1, max_size=5))
def test_the_messages_are_those_of_each_entry(entries: list[bytes]) -> None:
    assert together(entries) == alone(entries)


@settings(max_examples=60)
@given(st.lists(BATCH | ALONE | ENTRY, min_size=1, max_size=2), st.integers(1, 255))
def test_a_damaged_byte_is_refused_or_read_alike(entries: list[bytes], bits: int) -> None:
    for at in range(0, len(entries[0]), max(1, len(entries[0]) // 200)):
        damaged = bytearray(entries[0])
        damaged[at] ^= bits
        try:
            found = together([bytes(damaged), *entries[1:]])
        except (BadBytes, UnusualError):
            continue
        assert found == alone([bytes(damaged), *entries[1:]])


@given(st.lists(st.tuples(VALUE, SINGLE), min_size=1, max_size=3), st.data())
def test_a_batch_that_is_cut_is_refused(parts: list[Part], drawn: st.DataObject) -> None:
    data = batched(parts, checksum=False)
    layout = layout_of(data, "here")
    assume(len(data) > layout.end)
    cut = data[: drawn.draw(st.integers(layout.end, len(data) - 1))]
    with pytest.raises(UnusualError):
        together([cut])


@pytest.mark.parametrize(
    "unusual",
    [
        {"encryption_keys": [b""]},
        {"marker_type": 10},
        {"txnid_most_bits": 1},
        {"num_chunks_from_msg": 2},
        {"event_time": -1},
    ],
)
def test_unusual_entries_are_refused(unusual: dict[str, Any]) -> None:
    with pytest.raises(UnusualError):
        together([encoded(b"x", **unusual)])


@given(st.lists(st.tuples(st.sampled_from((0, 1, 127, 128, 300)), st.integers(1, 30), SINGLE), max_size=6), OPTIONS)
def test_runs_of_messages_of_one_size_are_read(runs: list[tuple[int, int, dict[str, Any]]], given: Any) -> None:
    parts = [
        (bytes([at]) * size, {"sequence_id": 3 * at, **single}) for size, count, single in runs for at in range(count)
    ]
    assert together([batched(parts, **given)]) == alone([batched(parts, **given)])


def test_sizes_that_differ_in_messages_of_one_length_are_read() -> None:
    parts = [(b"v" * (20 - size), {"partition_key": b"k" * size}) for size in (3, 3, 3, 4, 3, 3, 3, 5, 3, 3) * 20]
    assert together([batched(parts)]) == alone([batched(parts)])
