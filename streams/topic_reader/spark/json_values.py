"""Values of JSON schemas, which Pulsar's client writes with Jackson, as Python values for Arrow.

Unknown fields are ignored, and absent ones are null. Bytes are base64. Numbers, texts and truth values are not
converted into each other: Jackson would read them, but they are more probably written with another schema.
"""

import base64
import datetime
import decimal
import json
from collections.abc import Callable, Mapping
from typing import Any

from trueup.streams.rows import Row
from trueup.streams.topic_reader.spark.avro_types import full_name

Read = Callable[[object], object]


def parsed_json(value: bytes) -> object:
    """A value as JSON, in which numbers with a fraction or an exponent are decimals: a float has 17 digits at most.
    Raises `ValueError`, `ArithmeticError`, `RecursionError`."""
    return json.loads(value, parse_float=decimal.Decimal)


def reader_of(schema: Any) -> Read:
    """A function that converts JSON of `parsed_json` by this Avro schema, and raises `ValueError` or `TypeError` if it
    differs.

    ``schema`` is one for which `avro_types.AvroTypes` has a type."""
    return _reader(schema, {}, "")


def _reader(schema: Any, named: dict[str, Read], space: str) -> Read:
    """``named``: the types that are defined before, by full name; ``space``: the enclosing namespace."""
    if isinstance(schema, list):
        return _reader(next(branch for branch in schema if branch != "null"), named, space)
    if isinstance(schema, str):
        return _PLAIN.get(schema) or named[full_name(schema, space)]
    kind = schema["type"]
    if not isinstance(kind, str):
        return _reader(kind, named, space)
    if kind == "array":
        return _list(_reader(schema["items"], named, space))
    if kind == "map":
        return _map(_reader(schema["values"], named, space))
    if kind in ("record", "enum", "fixed"):
        return _defined(kind, schema, named, space)
    return _LOGICAL[schema["logicalType"]] if "logicalType" in schema else _reader(kind, named, space)


def _defined(kind: str, schema: Row, named: dict[str, Read], space: str) -> Read:
    full = full_name(str(schema.get("name")), str(schema.get("namespace") or space))
    space = full.rpartition(".")[0]
    if kind == "record":
        read = _record({field["name"]: _reader(field["type"], named, space) for field in schema["fields"]})
    elif "logicalType" in schema:
        read = _LOGICAL[schema["logicalType"]]
    else:
        read = _PLAIN["string" if kind == "enum" else "bytes"]
    named[full] = read
    return read


def _only(kind: type, but: type | None = None) -> Read:
    def read(value: object) -> object:
        if value is None or (isinstance(value, kind) and not (but and isinstance(value, but))):
            return value
        raise TypeError(type(value).__name__)

    return read


def _float(value: object) -> object:
    return None if value is None else float(_number(value))


def _bytes(value: object) -> object:
    if isinstance(value, str | None):
        return None if value is None else base64.b64decode(value, validate=True)
    raise TypeError(type(value).__name__)


def _number(value: object) -> int | float | decimal.Decimal:
    if isinstance(value, int | float | decimal.Decimal) and not isinstance(value, bool):
        return value
    raise TypeError(type(value).__name__)


def _amount(value: object) -> int | float:
    """A number of units of time, which are exact if it has no fraction."""
    number = _number(value)
    return float(number) if isinstance(number, decimal.Decimal) else number


def _date(value: object) -> object:
    return None if value is None else datetime.date(1970, 1, 1) + datetime.timedelta(days=_amount(value))


def _time(unit: str) -> Read:
    begin = datetime.datetime.fromtimestamp(0, datetime.UTC)
    return lambda value: None if value is None else begin + datetime.timedelta(**{unit: _amount(value)})


def _decimal(value: object) -> object:
    return None if value is None else decimal.Decimal(str(_number(value)))


def _list(read: Read) -> Read:
    return lambda value: None if value is None else [read(element) for element in _sequence(value)]


def _map(read: Read) -> Read:
    return lambda value: None if value is None else [(name, read(element)) for name, element in _mapping(value).items()]


def _record(fields: Mapping[str, Read]) -> Read:
    def convert(value: object) -> object:
        if value is None:
            return None
        values = _mapping(value)
        return {name: read(values.get(name)) for name, read in fields.items()}

    return convert


def _sequence(value: object) -> list[object]:
    if isinstance(value, list):
        return value
    raise TypeError(type(value).__name__)


def _mapping(value: object) -> dict[str, object]:
    if isinstance(value, dict):
        return value
    raise TypeError(type(value).__name__)


_PLAIN: Mapping[str, Read] = {
    "boolean": _only(bool),
    "int": _only(int, bool),
    "long": _only(int, bool),
    "float": _float,
    "double": _float,
    "string": _only(str),
    "bytes": _bytes,
}
_LOGICAL: Mapping[str, Read] = {
    "date": _date,
    "timestamp-millis": _time("milliseconds"),
    "timestamp-micros": _time("microseconds"),
    "decimal": _decimal,
}
