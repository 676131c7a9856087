"""Messages as Arrow columns."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from tests.unit.pulsar.pulsar_entries import batched, encoded
from trueup.connectors.pulsar.protocol.entry import entry_of
from trueup.connectors.pulsar.protocol.message import Message, messages_of
from trueup.connectors.pulsar.topics import topic_of
from trueup.state.read_priority.tiers import Tier
from trueup.streams.topic_reader.spark import columns
from trueup.streams.topic_reader.spark.columns import OutputColumns
from trueup.streams.topic_reader.spark.planner import EntryRange
from trueup.streams.topic_reader.spark.source import COLUMNS, PulsarLedgers, arrow_schema
from trueup.streams.topic_reader.spark.values import BYTES, Values

RANGE = EntryRange(topic_of("t/ns/a-partition-2"), 7, 0, 9)
SCHEMA = arrow_schema(PulsarLedgers({"topics": "a", "zookeeper": "h:1"}).schema(), COLUMNS)
PLAIN = Values(BYTES, None, strict=True)


def messages(data: bytes, entry: int = 3) -> list[Message]:
    return messages_of(entry_of(memoryview(data), "here"), 7, entry, "here")


def rows(*found: list[Message], tier: Tier = Tier.TIERED) -> list[dict[str, Any]]:
    made = OutputColumns(SCHEMA, RANGE, PLAIN).batches((some, tier) for some in found)
    return [row for batch in made for row in batch.to_pylist()]


def test_a_message_has_all_columns() -> None:
    given = {
        "publish_time": 1_500,
        "event_time": 2_000,
        "partition_key": b"k",
        "ordering_key": b"o",
        "schema_version": b"\0" * 8,
        "properties": [(b"a", b"1")],
    }
    (row,) = rows(messages(encoded(b"hello", **given)))
    assert row == {
        "topic": "persistent://t/ns/a-partition-2",
        "partition": 2,
        "ledger": 7,
        "entry": 3,
        "batch_index": -1,
        "message_id": "7:3",
        "key": b"k",
        "ordering_key": b"o",
        "value": b"hello",
        "properties": [("a", "1")],
        "publish_time": datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC),
        "event_time": datetime(1970, 1, 1, 0, 0, 2, 0, UTC),
        "producer": "p",
        "sequence": 5,
        "schema_version": b"\0" * 8,
        "encrypted": False,
        "tier": "tiered",
    }


def test_what_a_message_does_not_have_is_null() -> None:
    (row,) = rows(messages(encoded(b"", null_value=True)))
    absent = ("key", "ordering_key", "value", "event_time", "schema_version")
    assert ([row[name] for name in absent], row["properties"]) == ([None] * len(absent), [])


def test_messages_of_a_batch_have_an_index_in_their_id() -> None:
    found = rows(messages(batched([(b"a", {}), (b"b", {})])), messages(encoded(b"c"), 4))
    assert [row["message_id"] for row in found] == ["7:3:0", "7:3:1", "7:4"]


def test_of_a_repeated_property_the_last_value_applies() -> None:
    (row,) = rows(messages(encoded(b"", properties=[(b"a", b"1"), (b"b", b"2"), (b"a", b"3")])))
    assert dict(row["properties"]) == {"a": "3", "b": "2"}


def test_text_that_is_not_utf_8_is_replaced() -> None:
    (row,) = rows(messages(encoded(b"", producer_name=b"p\xff", properties=[(b"a", b"\xff")])))
    assert (row["producer"], dict(row["properties"])) == ("p\ufffd", {"a": "\ufffd"})


def test_a_time_beyond_those_of_spark_is_null() -> None:
    (row,) = rows(messages(encoded(b"", publish_time=(1 << 63) - 1)))
    assert row["publish_time"] is None


def test_record_batches_have_bounded_rows_and_bytes_and_one_tier() -> None:
    small, large = messages(batched([(b"x", {})] * 1_000)), messages(encoded(b"x" * (columns.BYTES // 2)))
    found = [(small, Tier.TIERED)] * 20 + [(large, Tier.TIERED)] * 5 + [(small, Tier.BOOKKEEPER)]
    made = list(OutputColumns(SCHEMA, RANGE, PLAIN).batches(found))
    assert [batch.num_rows for batch in made] == [9_000, 9_000, 2_002, 2, 1, 1_000]


def test_only_the_wanted_columns_are_built() -> None:
    schema = pa.schema([SCHEMA.field("value"), SCHEMA.field("entry")])
    (made,) = OutputColumns(schema, RANGE, PLAIN).batches([(messages(encoded(b"x")), Tier.TIERED)])
    assert made.to_pylist() == [{"value": b"x", "entry": 3}]
