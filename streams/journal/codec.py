"""The journal's records as Avro: one schema per topic, no registry; a record is the Avro body without a header.

New fields are appended, with a default and the attribute ``appended``. Records of earlier releases end before them, and
earlier releases ignore them.
"""

import io
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import fastavro

from trueup.state.common.errors import BadBytes
from trueup.streams.journal.topic import topic_of


@cache
def schema_text(topic: str) -> str:
    """The schema of a topic as JSON text, for example for Spark's from_avro."""
    return topic_of(topic).text


@cache
def _schema(topic: str) -> Any:
    return fastavro.parse_schema(json.loads(schema_text(topic)))


@cache
def _earlier(topic: str) -> tuple[Any, Mapping[str, Any]]:
    """The schema without the fields that were appended, and their defaults; no defaults if there are none."""
    whole = json.loads(schema_text(topic))
    kept = [field for field in whole["fields"] if "appended" not in field]
    defaults = {field["name"]: field["default"] for field in whole["fields"] if "appended" in field}
    assert whole["fields"][: len(kept)] == kept, "appended fields are the last ones"
    return fastavro.parse_schema({**whole, "name": f"{whole['name']}Earlier", "fields": kept}), defaults


def encode(topic: str, record: Any) -> bytes:
    """The Avro body of one record: a mapping or a named tuple."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _schema(topic), record._asdict() if hasattr(record, "_asdict") else record)
    return out.getvalue()


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
    except (ValueError, EOFError, IndexError, OverflowError, MemoryError, TypeError) as error:
        raise BadBytes(where, stream.tell(), expected, str(error)[:200] or "its end", "remove the record") from error


def ledger_key(ledger: int) -> bytes:
    """The key of records about one ledger: its id, 8 bytes big-endian."""
    return ledger.to_bytes(8, "big")
