"""Typed values, by schemas of their topic."""

import io
import json
import struct
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from trueup.connectors.pulsar.messages import Schema
from trueup.connectors.pulsar.schemas import (
    SchemaEntry,
    SchemaInfo,
    SchemaPlace,
    SchemaType,
    StoredSchema,
    schema_of,
    schema_places,
    version_of,
)
from trueup.state.common.errors import BadBytes, Refused, Stop
from trueup.state.read_priority.tiers import LedgerInfo
from trueup.streams.topic_reader.schemas import SchemaHistory
from trueup.streams.topic_reader.spark.values import ValueRow, Values, ValueSchema, spark_type, value_schema

FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "long"},
    {"name": "name", "type": ["null", "string"]},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "inner", "type": {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "double"}]}},
    {"name": "raw", "type": "bytes"},
    {"name": "counts", "type": {"type": "map", "values": "int"}},
]
RECORD: dict[str, Any] = {"type": "record", "name": "Order", "namespace": "shop", "fields": FIELDS}
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ORDER = {"id": 7, "name": "ä", "tags": ["a", "b"], "at": AT, "inner": {"x": 1.5}, "raw": b"\xff", "counts": {"c": 3}}


def avro(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def column(
    schema: ValueSchema,
    *values: bytes | None,
    history: SchemaHistory | None = None,
    version: bytes | None = None,
    strict: bool = True,
) -> list[Any]:
    arrow = to_arrow_schema(StructType([StructField("value", spark_type(schema))]), timezone="UTC")
    rows = [ValueRow(value, False, version, f"message {at}") for at, value in enumerate(values)]
    found: list[Any] = Values(schema, history, strict).column(rows, arrow.field("value").type).to_pylist()
    return found


class FakeSchemas:
    """A source of schema ledgers: version N is entry 0 of ledger 100 + N."""

    def __init__(self, *definitions: Any, kind: SchemaType = SchemaType.AVRO) -> None:
        self.definitions, self.kind = definitions, kind

    def look(self) -> list[SchemaPlace]:
        return [SchemaPlace(at, 100 + at, 0) for at in range(len(self.definitions))]

    def read(self, info: LedgerInfo, first: int, last: int | None) -> Iterator[tuple[int, memoryview]]:
        definition = json.dumps(self.definitions[info.ledger - 100]).encode()
        made = SchemaInfo(type=self.kind, schema=definition, deleted=False).SerializeToString()
        yield 0, memoryview(SchemaEntry(schema_data=made).SerializeToString())

    def history(self) -> SchemaHistory:
        return SchemaHistory("t", self.look, self)


def stored(kind: int, definition: Any = None) -> StoredSchema:
    return StoredSchema(0, kind, json.dumps(definition).encode() if definition else b"", deleted=False)


def test_a_locator_lists_every_version() -> None:
    made = Schema()
    made.info.version, made.info.position.ledgerId, made.info.position.entryId, made.info.hash = 1, 9, 0, b""
    made.index.add(version=0, hash=b"").position.SetInParent()
    made.index[0].position.ledgerId, made.index[0].position.entryId = 5, 0
    assert schema_places(made.SerializeToString(), "here") == [(0, 5, 0), (1, 9, 0)]


def test_an_entry_has_type_and_definition() -> None:
    ((_, payload),) = FakeSchemas(RECORD).read(LedgerInfo(100), 0, 0)
    assert schema_of(bytes(payload), 0, "here") == (0, SchemaType.AVRO, json.dumps(RECORD).encode(), False)


def test_an_entry_without_data_is_a_deletion() -> None:
    assert schema_of(SchemaEntry(schema_data=b"").SerializeToString(), 3, "here").deleted


def test_an_entry_of_other_bytes_is_refused() -> None:
    with pytest.raises(BadBytes):
        schema_of(b"\xff\xff", 0, "here")


def test_the_version_of_a_message_is_its_first_eight_bytes() -> None:
    assert (version_of(struct.pack(">q", 3)), version_of(struct.pack(">q", 3) + bytes(56))) == (3, 3)


@pytest.mark.parametrize(
    ("kind", "raw", "value"),
    [
        (SchemaType.BOOLEAN, b"\1", True),
        (SchemaType.INT8, b"\xff", -1),
        (SchemaType.INT16, b"\xff\xfe", -2),
        (SchemaType.INT32, b"\0\0\1\0", 256),
        (SchemaType.INT64, struct.pack(">q", -5), -5),
        (SchemaType.FLOAT, struct.pack(">f", 1.5), 1.5),
        (SchemaType.DOUBLE, struct.pack(">d", 2.5), 2.5),
        (SchemaType.TIMESTAMP, struct.pack(">q", 1_000), datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        (SchemaType.LOCALDATE, struct.pack(">q", 1), date(1970, 1, 2)),
        (SchemaType.STRING, "ä".encode(), "ä"),
    ],
)
def test_primitives_are_read_as_pulsar_writes_them(kind: SchemaType, raw: bytes, value: Any) -> None:
    assert column(ValueSchema(kind), raw, None) == [value, None]
    assert column(ValueSchema(kind), raw, b"\xff\xff\xff", strict=False) == [value, None]


def test_a_value_of_another_size_is_an_error_that_names_the_message() -> None:
    with pytest.raises(BadBytes, match="message 1"):
        column(ValueSchema(SchemaType.INT32), bytes(4), bytes(5))


_OUTSIDE = [
    (SchemaType.TIMESTAMP, 253_402_300_800_000),
    (SchemaType.TIMESTAMP, 1 << 62),
    (SchemaType.DATE, -62_135_596_800_001),
    (SchemaType.LOCALDATE, 2_932_897),
    (SchemaType.LOCALDATE, 1 << 32),
    (SchemaType.LOCALDATE, -(1 << 40)),
]


@pytest.mark.parametrize(("kind", "number"), _OUTSIDE)
def test_a_time_outside_of_the_years_1_to_9999_is_null_or_an_error(kind: SchemaType, number: int) -> None:
    raw = struct.pack(">q", number)
    (found, other) = column(ValueSchema(kind), raw, bytes(8), strict=False)
    assert (found, other.year) == (None, 1970)
    with pytest.raises(BadBytes, match="message 0"):
        column(ValueSchema(kind), raw)


@pytest.mark.parametrize(
    ("kind", "number", "value"),
    [
        (SchemaType.TIMESTAMP, 253_402_300_799_999, datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)),
        (SchemaType.DATE, -62_135_596_800_000, datetime(1, 1, 1, tzinfo=UTC)),
        (SchemaType.LOCALDATE, 2_932_896, date.max),
        (SchemaType.LOCALDATE, -719_162, date.min),
    ],
)
def test_the_first_and_the_last_time_are_values(kind: SchemaType, number: int, value: Any) -> None:
    assert column(ValueSchema(kind), struct.pack(">q", number)) == [value]


def test_avro_values_are_records() -> None:
    schema = ValueSchema(SchemaType.AVRO, json.dumps(RECORD).encode())
    (found,) = column(schema, avro(RECORD, ORDER))
    assert {**found, "counts": dict(found["counts"])} == ORDER


def test_avro_values_are_read_with_the_schema_of_their_version() -> None:
    old = {**RECORD, "fields": FIELDS[:1]}
    new = {**RECORD, "fields": [*FIELDS[:1], {"name": "more", "type": ["null", "int"], "default": None}]}
    schema = ValueSchema(SchemaType.AVRO, json.dumps(new).encode())
    history = FakeSchemas(old, new).history()
    assert column(schema, avro(old, {"id": 1}), history=history, version=bytes(8)) == [{"id": 1, "more": None}]
    version = struct.pack(">q", 1)
    assert column(schema, avro(new, {"id": 1, "more": 2}), history=history, version=version) == [{"id": 1, "more": 2}]
    with pytest.raises(Stop, match="version 2"):
        column(schema, b"", history=history, version=struct.pack(">q", 2))


def test_json_values_are_records() -> None:
    schema = ValueSchema(SchemaType.JSON, json.dumps(RECORD).encode())
    value = {**ORDER, "at": int(AT.timestamp() * 1_000), "raw": "/w==", "unknown": 1}
    (found,) = column(schema, json.dumps(value).encode())
    assert {**found, "counts": dict(found["counts"])} == ORDER
    assert column(schema, b'{"id": 1}') == [{**dict.fromkeys(ORDER), "id": 1}]


def json_of(fields: list[dict[str, Any]], value: str) -> Any:
    """The value of a JSON schema of a record ``shop.Order`` with these fields."""
    definition = {"type": "record", "name": "Order", "namespace": "shop", "fields": fields}
    (found,) = column(ValueSchema(SchemaType.JSON, json.dumps(definition).encode()), value.encode())
    return found


def test_types_of_the_same_short_name_are_different() -> None:
    billing, shipping = (
        {"type": "record", "name": "Address", "namespace": f"shop.{space}", "fields": [{"name": field, "type": "int"}]}
        for space, field in (("Billing", "box"), ("Shipping", "street"))
    )
    types = (billing, shipping, "shop.Billing.Address", {"type": "shop.Shipping.Address"})
    names = ("a", "b", "c", "d")
    value = {"a": {"box": 1}, "b": {"street": 2}, "c": {"box": 3}, "d": {"street": 4}}
    fields = [{"name": name, "type": one} for name, one in zip(names, types, strict=True)]
    assert json_of(fields, json.dumps(value)) == value


def test_a_type_is_named_in_the_namespace_of_its_record() -> None:
    inner = {"type": "fixed", "name": "Hash", "size": 1}
    fields = [{"name": "a", "type": inner}, {"name": "b", "type": "Hash"}, {"name": "c", "type": "shop.Hash"}]
    assert json_of(fields, '{"a": "/w==", "b": "/w==", "c": "/w=="}') == dict.fromkeys("abc", b"\xff")


def test_a_decimal_in_json_has_all_of_its_digits() -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 18}
    found = json_of([{"name": "sum", "type": kind}], '{"sum": 12345678901234567.890123456789012345}')
    assert found == {"sum": Decimal("12345678901234567.890123456789012345")}


def test_numbers_with_a_fraction_are_read_as_double_date_and_time() -> None:
    fields = [
        {"name": "x", "type": "double"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ]
    expected = {"x": 0.1, "day": date(1970, 1, 2), "at": datetime(1970, 1, 1, 0, 0, 1, 500, tzinfo=UTC)}
    assert json_of(fields, '{"x": 0.1, "day": 1.0, "at": 1000.5}') == expected


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[",
        b"[1]",
        b'{"id": "1"}',
        b'{"tags": 3}',
        b'{"raw": "?"}',
        b"\xff",
        b'{"id": 9223372036854775808}',
        b"[" * 100_000,
    ],
)
def test_json_that_does_not_fit_is_null_or_an_error(value: bytes) -> None:
    schema = ValueSchema(SchemaType.JSON, json.dumps(RECORD).encode())
    assert column(schema, value, b'{"id": 1}', strict=False)[0] is None
    with pytest.raises(BadBytes):
        column(schema, value)


@pytest.mark.parametrize(
    "unfit",
    [
        {"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"]}]},
        ["int", "string"],
        {"type": "record", "name": "R", "fields": []},
        {"type": "array"},
        3,
        None,
        {"type": "odd"},
    ],
)
def test_a_schema_that_spark_cannot_represent_is_refused(unfit: Any) -> None:
    with pytest.raises(Refused):
        spark_type(ValueSchema(SchemaType.AVRO, json.dumps(unfit).encode()))


@pytest.mark.parametrize(
    ("wanted", "found", "kind"),
    [
        ("auto", stored(SchemaType.INT32), SchemaType.INT32),
        ("auto", None, SchemaType.NONE),
        ("avro", stored(SchemaType.AVRO, RECORD), SchemaType.AVRO),
        ("bytes", None, SchemaType.NONE),
        ("string", None, SchemaType.STRING),
    ],
)
def test_the_type_is_that_of_the_topics_schema(wanted: str, found: StoredSchema | None, kind: SchemaType) -> None:
    assert value_schema(wanted, {"t": found}).kind is kind


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("avro", stored(SchemaType.JSON, RECORD)),
        ("json", None),
        ("auto", stored(SchemaType.KEYVALUE)),
        ("auto", stored(99)),
    ],
)
def test_a_topic_with_another_schema_is_refused(wanted: str, found: StoredSchema | None) -> None:
    with pytest.raises(Refused, match="as the schema of t"):
        value_schema(wanted, {"t": found})


def test_topics_with_schemas_of_different_types_are_refused() -> None:
    with pytest.raises(Refused, match="for t and u"):
        value_schema("auto", {"t": stored(SchemaType.INT32), "u": stored(SchemaType.STRING)})
