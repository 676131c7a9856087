"""Typed values: from the bytes of messages to a column, by the schemas of their topic."""

import datetime
import io
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import fastavro
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampType,
)

from trueup.connectors.pulsar.schemas import SchemaType, StoredSchema, version_of
from trueup.state.common.arrays import Array
from trueup.state.common.errors import BadBytes, Refused, Stop
from trueup.streams.topic_reader.schemas import SchemaHistory
from trueup.streams.topic_reader.spark.avro_types import AvroTypes, parsed
from trueup.streams.topic_reader.spark.json_values import parsed_json, reader_of

_NUMBERS: Mapping[SchemaType, tuple[str, Callable[[], DataType]]] = {
    SchemaType.BOOLEAN: (">i1", BooleanType),
    SchemaType.INT8: (">i1", ByteType),
    SchemaType.INT16: (">i2", ShortType),
    SchemaType.INT32: (">i4", IntegerType),
    SchemaType.INT64: (">i8", LongType),
    SchemaType.FLOAT: (">f4", FloatType),
    SchemaType.DOUBLE: (">f8", DoubleType),
    SchemaType.DATE: (">i8", TimestampType),
    SchemaType.TIMESTAMP: (">i8", TimestampType),
    SchemaType.LOCALDATE: (">i8", DateType),
}
"""Fixed-size numbers, big-endian, as Pulsar's client encodes them; times in ms since 1970, dates in days."""
_EPOCH, _DAY_MS = datetime.date(1970, 1, 1).toordinal(), 86_400_000
_DAYS = datetime.date.min.toordinal() - _EPOCH, datetime.date.max.toordinal() - _EPOCH
_TIMES = _DAYS[0] * _DAY_MS, (_DAYS[1] + 1) * _DAY_MS - 1
_RANGES = {SchemaType.DATE: _TIMES, SchemaType.TIMESTAMP: _TIMES, SchemaType.LOCALDATE: _DAYS}
"""The first and the last number of the years 1 to 9999, which Spark supports; others could wrap around."""
_RECORDS = (SchemaType.AVRO, SchemaType.JSON)
_TODO = "read the values as bytes (value_type: bytes), or have those null (undecodable: null)"
_BAD = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    EOFError,
    OverflowError,
    RecursionError,
    struct.error,
    ArithmeticError,
    MemoryError,
)
"""What fastavro and the readers of JSON raise for bytes that do not fit."""


class ValueSchema(NamedTuple):
    """The type of the column ``value``: the schema in force when the read was planned."""

    kind: SchemaType
    definition: bytes = b""
    """The definition of the schema of AVRO or JSON records; empty for other types."""


BYTES = ValueSchema(SchemaType.NONE)


def value_schema(value_type: str, schemas: Mapping[str, StoredSchema | None]) -> ValueSchema:
    """The type for the option ``value_type`` and the latest schemas of the topics. Raises `Refused` if they differ, or
    if a topic has no schema of the wanted type."""
    if value_type == "bytes":
        return BYTES
    if value_type == "string":
        return ValueSchema(SchemaType.STRING)
    kinds = {name: _checked(name, schema, value_type) for name, schema in schemas.items()}
    first = next(iter(kinds.items()), None)
    for name, kind in kinds.items():
        if first is not None and spark_type(kind) != spark_type(first[1]):
            raise Refused(f"schemas of one type for {first[0]} and {name}", "two", "read the topics one by one")
    return first[1] if first is not None else BYTES


def _checked(name: str, schema: StoredSchema | None, value_type: str) -> ValueSchema:
    kind = SchemaType.NONE if schema is None else schema.kind
    readable = kind == SchemaType.NONE or kind == SchemaType.STRING or kind in _NUMBERS or kind in _RECORDS
    shown = SchemaType(kind).name if kind in [*SchemaType] else f"type {kind}"
    if not readable or (value_type != "auto" and shown.lower() != value_type):
        expected = (
            "a schema that is not KEYVALUE, PROTOBUF or a time of day" if value_type == "auto" else value_type.upper()
        )
        raise Refused(f"{expected} as the schema of {name}", shown, "read its values as bytes (value_type: bytes)")
    return ValueSchema(SchemaType(kind), schema.definition if schema is not None and kind in _RECORDS else b"")


def spark_type(schema: ValueSchema) -> DataType:
    """The type of the column. Raises `Refused` for an Avro schema that Spark cannot represent."""
    if schema.kind in _RECORDS:
        where = "the schema of the values"
        return AvroTypes(where).of(parsed(schema.definition, where))
    if schema.kind in _NUMBERS:
        return _NUMBERS[schema.kind][1]()
    return StringType() if schema.kind is SchemaType.STRING else BinaryType()


class ValueRow(NamedTuple):
    """A message as far as its value is concerned."""

    value: bytes | None
    encrypted: bool
    version: bytes | None
    """The version of the schema of the value, as stored; None if there is none."""
    where: str
    """The topic and the position of the message, for errors."""


class Values:
    """Builds the column ``value`` of one topic. Encrypted values are null. ``strict``: whether a value that does not
    fit raises `BadBytes`; otherwise the value is null and counted in ``undecoded``. ``typed``: whether the values have
    a type other than bytes."""

    def __init__(self, schema: ValueSchema, history: SchemaHistory | None, strict: bool) -> None:
        self._schema, self._history, self._strict = schema, history, strict
        self._readers: dict[bytes | None, Callable[[bytes], object]] = {}
        self.typed, self.undecoded = schema.kind is not SchemaType.NONE, 0

    def column(self, rows: Sequence[ValueRow], kind: pa.DataType) -> pa.Array:
        """The values of these rows, as this Arrow type."""
        numbers = _NUMBERS.get(self._schema.kind)
        if numbers is not None:
            array = self._numbers(rows, np.dtype(numbers[0]), kind)
            if array is not None:
                return array
        values = [self._value(row) for row in rows]
        try:
            return pa.array(values, kind)
        except _BAD:
            return pa.array([self._fitting(*pair, kind) for pair in zip(rows, values, strict=True)], kind)

    def _fitting(self, row: ValueRow, value: object, kind: pa.DataType) -> object:
        """A value that has the type, which one of a batch has not."""
        try:
            pa.array([value], kind)
        except _BAD as error:
            self._unfit(row, error)
            return None
        return value

    def _numbers(self, rows: Sequence[ValueRow], width: np.dtype[np.number], kind: pa.DataType) -> pa.Array | None:
        """All values at once if each has the right size and is in the range of its type, else None."""
        values = [b"\0" * width.itemsize if row.value is None or row.encrypted else row.value for row in rows]
        if any(len(value) != width.itemsize for value in values):
            return None
        absent = np.array([row.value is None or row.encrypted for row in rows])
        numbers = np.frombuffer(b"".join(values), width).astype(width.newbyteorder("="))
        limits = _RANGES.get(self._schema.kind)
        if limits is not None and ((numbers < limits[0]) | (numbers > limits[1])).any():
            return None
        return _typed(numbers, self._schema.kind, kind, absent)

    def _value(self, row: ValueRow) -> object:
        if row.value is None or row.encrypted:
            return None
        try:
            return self._reader(row.version)(row.value)
        except _BAD as error:
            self._unfit(row, error)
            return None

    def _unfit(self, row: ValueRow, error: Exception) -> None:
        self.undecoded += 1
        if self._strict:
            problem = f"other bytes ({type(error).__name__})"
            raise BadBytes(row.where, 0, f"a value of type {self._schema.kind.name}", problem, _TODO) from error

    def _reader(self, raw: bytes | None) -> Callable[[bytes], object]:
        """The reader for values written with this version; without a version, with the schema in force."""
        if raw not in self._readers:
            self._readers[raw] = self._made(raw)
        return self._readers[raw]

    def _made(self, raw: bytes | None) -> Callable[[bytes], object]:
        kind = self._schema.kind
        if kind is SchemaType.STRING:
            return lambda value: value.decode("utf-8")
        if kind in _NUMBERS:
            return self._alone
        if kind is SchemaType.JSON:
            read = reader_of(parsed(self._schema.definition, "the schema of the values"))
            return lambda value: read(parsed_json(value))
        return _avro(self._written(raw), self._schema.definition)

    def _written(self, raw: bytes | None) -> bytes:
        """The schema with which a value was written."""
        if raw is None or self._history is None:
            return self._schema.definition
        schema = self._history.version(version_of(raw))
        if schema.kind != SchemaType.AVRO:
            raise Stop(f"version {schema.version} of the schema to be AVRO", f"type {schema.kind}", _TODO)
        return schema.definition

    def _alone(self, value: bytes) -> object:
        """One number beside values of another size."""
        width = np.dtype(_NUMBERS[self._schema.kind][0])
        if len(value) != width.itemsize:
            raise ValueError(len(value))
        number = np.frombuffer(value, width)[0].item()
        if self._schema.kind is SchemaType.LOCALDATE:
            return datetime.date(1970, 1, 1) + datetime.timedelta(days=number)
        if self._schema.kind in (SchemaType.DATE, SchemaType.TIMESTAMP):
            return datetime.datetime.fromtimestamp(0, datetime.UTC) + datetime.timedelta(milliseconds=number)
        return bool(number) if self._schema.kind is SchemaType.BOOLEAN else number


def _typed(numbers: Array, of: SchemaType, kind: pa.DataType, absent: NDArray[np.bool_]) -> pa.Array:
    if of is SchemaType.BOOLEAN:
        return pa.array(numbers != 0, kind, mask=absent)
    if of in (SchemaType.DATE, SchemaType.TIMESTAMP):
        return pa.array(numbers * 1_000, kind, mask=absent)
    if of is SchemaType.LOCALDATE:
        return pa.array(numbers.astype(np.int32), pa.int32(), mask=absent).cast(kind)
    return pa.array(numbers, kind, mask=absent)


def _avro(writer: bytes, reader: bytes) -> Callable[[bytes], object]:
    """Reads values of one schema as another one (schema resolution of Avro)."""
    where = "the schema of the values"
    written, target = (fastavro.parse_schema(parsed(schema, where)) for schema in (writer, reader))
    resolved = None if writer == reader else target
    return lambda value: fastavro.schemaless_reader(io.BytesIO(value), written, resolved)
