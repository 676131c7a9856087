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
        return _reader(next(each for each in schema if each != "null"), named, space)
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
    def read(found: object) -> object:
        if found is None or (isinstance(found, kind) and not (but and isinstance(found, but))):
            return found
        raise TypeError(type(found).__name__)

    return read


def _float(found: object) -> object:
    return None if found is None else float(_number(found))


def _bytes(found: object) -> object:
    if isinstance(found, str | None):
        return None if found is None else base64.b64decode(found, validate=True)
    raise TypeError(type(found).__name__)


def _number(found: object) -> int | float | decimal.Decimal:
    if isinstance(found, int | float | decimal.Decimal) and not isinstance(found, bool):
        return found
    raise TypeError(type(found).__name__)


def _amount(found: object) -> int | float:
    """A number of units of time, which are exact if it has no fraction."""
    number = _number(found)
    return float(number) if isinstance(number, decimal.Decimal) else number


def _date(found: object) -> object:
    return None if found is None else datetime.date(1970, 1, 1) + datetime.timedelta(days=_amount(found))


def _time(unit: str) -> Read:
    begin = datetime.datetime.fromtimestamp(0, datetime.UTC)
    return lambda found: None if found is None else begin + datetime.timedelta(**{unit: _amount(found)})


def _decimal(found: object) -> object:
    return None if found is None else decimal.Decimal(str(_number(found)))


def _list(read: Read) -> Read:
    return lambda found: None if found is None else [read(each) for each in _sequence(found)]


def _map(read: Read) -> Read:
    return lambda found: None if found is None else [(name, read(each)) for name, each in _mapping(found).items()]


def _record(fields: Mapping[str, Read]) -> Read:
    def convert(found: object) -> object:
        if found is None:
            return None
        values = _mapping(found)
        return {name: read(values.get(name)) for name, read in fields.items()}

    return convert


def _sequence(found: object) -> list[object]:
    if isinstance(found, list):
        return found
    raise TypeError(type(found).__name__)


def _mapping(found: object) -> dict[str, object]:
    if isinstance(found, dict):
        return found
    raise TypeError(type(found).__name__)


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
