"""Columns of entries that are parsed together equal those of their messages, for any content."""

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.codecs.test_pulsar_rows import ALONE, BATCH, held
from tests.unit.reads.test_columns import PLAIN, RANGE, SCHEMA, messages
from trueup.connectors.pulsar.protocol.rows import rows_of
from trueup.connectors.pulsar.schemas import SchemaType
from trueup.state.reads.tiers import Tier
from trueup.streams.reads.spark.columns import Columns
from trueup.streams.reads.spark.values import Values, ValueSchema


def columns(found: list[Any], values: Values = PLAIN) -> list[dict[str, Any]]:
    schema = SCHEMA
    if values.typed:
        schema = SCHEMA.set(SCHEMA.get_field_index("value"), SCHEMA.field("topic").with_name("value"))
    made = pa.Table.from_batches(Columns(schema, RANGE, values).batches((one, Tier.TIERED) for one in found), schema)
    for name in ("publish_time", "event_time"):  # Python has no dates after 9999
        made = made.set_column(made.schema.get_field_index(name), name, made[name].cast(pa.int64()))
    return list(made.to_pylist())


@settings(max_examples=150)
@given(st.lists(BATCH | ALONE, min_size=1, max_size=4))
def test_columns_are_those_of_the_messages(entries: list[bytes]) -> None:
    rows = rows_of(held(entries))
    expected = columns([messages(data, entry) for entry, data in enumerate(entries, 3)])
    found = columns([rows])
    if rows.properties:  # these are left out
        found = [{**row, "properties": []} for row in found]
        expected = [{**row, "properties": []} for row in expected]
    assert found == expected


@settings(max_examples=60)
@given(st.lists(BATCH | ALONE, min_size=1, max_size=3))
def test_typed_values_are_those_of_the_messages(entries: list[bytes]) -> None:
    text = ValueSchema(SchemaType.STRING)
    together = columns([rows_of(held(entries))], Values(text, None, strict=False))
    alone = columns([messages(data, at) for at, data in enumerate(entries, 3)], Values(text, None, strict=False))
    assert [row["value"] for row in together] == [row["value"] for row in alone]
