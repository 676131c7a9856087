"""Avro schemas, which AVRO and JSON schemas of Pulsar contain, as types of Spark.

Not representable, and refused: recursive records, unions other than of null and one type, records without fields.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from trueup.state.common.errors import Refused
from trueup.streams.rows import Row

_PRIMITIVE: Mapping[str, Callable[[], DataType]] = {
    "boolean": BooleanType,
    "int": IntegerType,
    "long": LongType,
    "float": FloatType,
    "double": DoubleType,
    "bytes": BinaryType,
    "string": StringType,
}
_LOGICAL: Mapping[tuple[str, str], Callable[[], DataType]] = {
    ("int", "date"): DateType,
    ("long", "timestamp-millis"): TimestampType,
    ("long", "timestamp-micros"): TimestampType,
}
_DEPTH = 50


def parsed(definition: bytes, where: str) -> Any:
    """An Avro schema without the logical types that Spark lacks. Raises `Refused`."""
    try:
        return _plain(json.loads(definition))
    except (ValueError, RecursionError):
        raise _refused(f"an Avro schema as JSON in {where}", "something else") from None


def _plain(schema: object) -> object:
    if isinstance(schema, list):
        return [_plain(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {
        name: _plain(part) if name in ("type", "items", "values", "fields") else part for name, part in schema.items()
    }
    logical = plain.get("logicalType")
    if logical is not None and logical != "decimal" and (plain.get("type"), logical) not in _LOGICAL:
        del plain["logicalType"]
    return plain


def full_name(name: str, space: str) -> str:
    """The name of a type with its namespace. ``space``: the namespace that encloses it; empty: none."""
    return name if "." in name or not space else f"{space}.{name}"


class AvroTypes:
    """Types of Spark for one parsed schema. Raises `Refused`."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._named: dict[str, DataType] = {}
        self._open: list[str] = []

    def of(self, schema: object, space: str = "") -> DataType:
        """The type. A union with null has the type of its other part: every column is nullable."""
        if len(self._open) > _DEPTH:
            raise self._unfit("a schema of fewer levels")
        if isinstance(schema, list):
            some = [branch for branch in schema if branch != "null"]
            if len(some) != 1:
                raise self._unfit("a union of null and one type")
            return self.of(some[0], space)
        if isinstance(schema, str):
            return self._by_name(schema, space)
        kind = schema.get("type") if isinstance(schema, dict) else None
        if isinstance(kind, dict | list):
            return self.of(kind, space)
        if not isinstance(schema, dict) or not isinstance(kind, str):
            raise self._unfit("a type")
        return self._complex(kind, schema, space)

    def _by_name(self, name: str, space: str) -> DataType:
        if name in _PRIMITIVE:
            return _PRIMITIVE[name]()
        full = full_name(name, space)
        if full in self._open or full not in self._named:
            raise self._unfit("types that are defined before, without recursion")
        return self._named[full]

    def _complex(self, kind: str, schema: Row, space: str) -> DataType:
        if kind == "array":
            return ArrayType(self.of(schema.get("items"), space))
        if kind == "map":
            return MapType(StringType(), self.of(schema.get("values"), space))
        if kind in ("record", "enum", "fixed"):
            return self._defined(kind, schema, space)
        if schema.get("logicalType") == "decimal" and kind == "bytes":
            return self._decimal(schema)
        return _LOGICAL.get((kind, str(schema.get("logicalType"))), lambda: self._by_name(kind, space))()

    def _defined(self, kind: str, schema: Row, space: str) -> DataType:
        full = full_name(str(schema.get("name")), str(schema.get("namespace") or space))
        space = full.rpartition(".")[0]
        if kind == "enum":
            self._named[full] = StringType()
        elif kind == "fixed":
            self._named[full] = self._decimal(schema) if schema.get("logicalType") == "decimal" else BinaryType()
        else:
            self._open.append(full)
            fields = schema.get("fields")
            if not isinstance(fields, list) or not fields or not all(isinstance(field, dict) for field in fields):
                raise self._unfit("a record with fields")
            columns = [StructField(str(field.get("name")), self.of(field.get("type"), space)) for field in fields]
            self._open.pop()
            self._named[full] = StructType(columns)
        return self._named[full]

    def _decimal(self, schema: Row) -> DataType:
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision <= 38:
            raise self._unfit("a decimal of at most 38 digits")
        return DecimalType(precision, scale)

    def _unfit(self, expected: str) -> Refused:
        return _refused(f"{expected} in {self._where}", "another schema")


def _refused(expected: str, found: str) -> Refused:
    return Refused(expected, found, "read the values as bytes (value_type: bytes)")
