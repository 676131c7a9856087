"""The journal's records as Avro: one schema per topic, no registry; a record is the Avro body without a header.

New fields are appended, with a default and the attribute ``appended``. Records of earlier releases end before them, and
earlier releases ignore them.
"""

import io
import json
from functools import cache
from typing import Any

import fastavro

from trueup.state.common.errors import BadBytes
from trueup.streams.journal.ranges import Check, check_of
from trueup.streams.journal.topic import Record, topic_of

REMOVE = "it is skipped; `trueup journal repair` removes it"
WRONG = (ValueError, EOFError, LookupError, ArithmeticError, MemoryError, TypeError, AttributeError, RecursionError)
"""What the conversion of a record raises whose bytes or values its writer did not make."""


@cache
def schema_text(topic: str) -> str:
    """The schema of a topic as JSON text, for example for Spark's from_avro."""
    return topic_of(topic).text


@cache
def _schema(topic: str) -> Any:
    return fastavro.parse_schema(json.loads(schema_text(topic)))


@cache
def _earlier(topic: str) -> tuple[Any, Record]:
    """The schema without the fields that were appended, and their defaults; no defaults if there are none."""
    whole = json.loads(schema_text(topic))
    kept = [field for field in whole["fields"] if "appended" not in field]
    defaults = {field["name"]: field["default"] for field in whole["fields"] if "appended" in field}
    assert whole["fields"][: len(kept)] == kept, "appended fields are the last ones"
    return fastavro.parse_schema({**whole, "name": f"{whole['name']}Earlier", "fields": kept}), defaults


def encode(topic: str, record: object) -> bytes:
    """The Avro body of one record: a mapping or a named tuple."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _schema(topic), record._asdict() if hasattr(record, "_asdict") else record)
    return out.getvalue()


def checked(topic: str, key: bytes, body: bytes, where: str) -> Any:
    """The record of a topic in the form that readers use. Raises `BadBytes` if the topic's writer did not make it: the
    body, a number, the key or the form differ."""
    declared, record = topic_of(topic), decode(topic, body, where)
    try:
        if (check := _ranges(topic)) is not None:
            check(record)
        own_key = declared.key(record) if declared.key else key
        value = declared.formed(record) if declared.form else record
    except WRONG as error:
        text = str(error)[:200] or type(error).__name__
        raise BadBytes(where, 0, f"values of an Avro {declared.kind}", text, REMOVE) from error
    if own_key != key:
        raise BadBytes(where, 0, f"the key of this record, {own_key!r:.100}", f"the key {key!r:.100}", REMOVE)
    return value


@cache
def _ranges(topic: str) -> Check | None:
    return check_of(json.loads(schema_text(topic)))


def decode(topic: str, body: bytes, where: str = "") -> Any:
    """The record in an Avro body. ``where``: its position, for errors. Raises `BadBytes`."""
    expected = f"an Avro {topic_of(topic).kind}"
    try:
        return read(body, _schema(topic), where or topic, expected)
    except BadBytes:
        schema, defaults = _earlier(topic)
        if not defaults:
            raise
        return {**read(body, schema, where or topic, expected), **defaults}


def read(body: bytes, schema: Any, where: str, expected: str) -> Any:
    """The record at the beginning of a body, by a parsed schema; further bytes are ignored. Raises `BadBytes`."""
    stream = io.BytesIO(body)
    try:
        return fastavro.schemaless_reader(stream, schema, None)
    except WRONG as error:
        raise BadBytes(where, stream.tell(), expected, str(error)[:200] or "its end", REMOVE) from error


def ledger_key(ledger: int) -> bytes:
    """The key of records about one ledger: its id, 8 bytes big-endian."""
    return ledger.to_bytes(8, "big")
