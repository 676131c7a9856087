"""Columns of entries that are parsed together equal those of their messages, for any content."""

from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.codecs.test_pulsar_rows import ALONE, BATCH, held
from tests.unit.pulsar.pulsar_entries import batched, encoded
from tests.unit.topic_reader.test_columns import PLAIN, RANGE, SCHEMA, messages
from trueup.connectors.pulsar.protocol.rows import kept, rows_of
from trueup.connectors.pulsar.schemas import SchemaType
from trueup.state.read_priority.tiers import Tier
from trueup.streams.topic_reader.spark.columns import OutputColumns
from trueup.streams.topic_reader.spark.values import Values, ValueSchema


def columns(found: list[Any], values: Values = PLAIN) -> list[dict[str, Any]]:
    schema = SCHEMA
    if values.typed:
        schema = SCHEMA.set(SCHEMA.get_field_index("value"), SCHEMA.field("topic").with_name("value"))
    made = pa.Table.from_batches(
        OutputColumns(schema, RANGE, values).batches((one, Tier.TIERED) for one in found), schema
    )
    for name in ("publish_time", "event_time"):  # Python has no dates after 9999
        made = made.set_column(made.schema.get_field_index(name), name, made[name].cast(pa.int64()))
    return list(made.to_pylist())


@settings(max_examples=150)
@given(st.lists(BATCH | ALONE, min_size=1, max_size=4))
def test_columns_are_those_of_the_messages(entries: list[bytes]) -> None:
    assert columns([rows_of(held(entries))]) == columns([messages(data, at) for at, data in enumerate(entries, 3)])


@given(st.lists(BATCH | ALONE, min_size=1, max_size=4), st.randoms())
def test_columns_of_some_messages_are_those_of_the_same_messages(entries: list[bytes], random: Random) -> None:
    found = [one for at, data in enumerate(entries, 3) for one in messages(data, at)]
    which = [random.random() < 0.5 for _ in found]
    some = kept(rows_of(held(entries)), np.array(which, bool))
    assert columns([some]) == columns([[one for one, chosen in zip(found, which, strict=True) if chosen]])


@settings(max_examples=60)
@given(st.lists(BATCH | ALONE, min_size=1, max_size=3))
def test_typed_values_are_those_of_the_messages(entries: list[bytes]) -> None:
    text = ValueSchema(SchemaType.STRING)
    together = columns([rows_of(held(entries))], Values(text, None, strict=False))
    alone = columns([messages(data, at) for at, data in enumerate(entries, 3)], Values(text, None, strict=False))
    assert [row["value"] for row in together] == [row["value"] for row in alone]


NAMES = st.lists(st.tuples(st.sampled_from([b"a", b"b", b"\xff"]), st.binary(max_size=2)), max_size=4)


@given(st.lists(NAMES, min_size=1, max_size=4), NAMES)
def test_repeated_properties_are_those_of_the_messages(batch: list[Any], single: Any) -> None:
    entries = [batched([(b"", {"properties": pairs}) for pairs in batch], properties=single)]
    entries.append(encoded(b"", properties=single))
    assert columns([rows_of(held(entries))]) == columns([messages(data, at) for at, data in enumerate(entries, 3)])
