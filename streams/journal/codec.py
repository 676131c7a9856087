"""The journal's records as Avro: one schema per topic, no registry; a record is the Avro body without a header."""

import io
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import fastavro

from trueup.state.bookkeeper.topology import Bookie, Status, Topology
from trueup.state.common.errors import BadBytes

SCHEMAS = {
    "ledgers": "ledger", "marks": "mark", "topology": "topology", "findings": "finding", "repairs": "repair",
    "config": "setting", "links": "copy", "offsets": "offsets",
    "memory": "setting", "directories": "directories", "changes": "changes", "owners": "owner", "markers": "marker",
    "strays": "marker", "reports": "report", "history": "history", "reached": "setting",
}  # fmt: skip
"""Schemas of the topics that several streams share or that executors read: names of files in the folder schemas."""
_declared: dict[str, str] = {}


def declare(topic: str, schema: Mapping[str, Any]) -> None:
    """Add a topic with its Avro schema. It is compacted and has one partition."""
    if topic in SCHEMAS or _declared.setdefault(topic, json.dumps(schema)) != json.dumps(schema):
        raise ValueError(f"the journal's topic {topic} already has a different schema")


def topics() -> list[str]:
    """The names of all topics."""
    return [*SCHEMAS, *_declared]


@cache
def schema_text(topic: str) -> str:
    """The schema of a topic as JSON text, for example for Spark's from_avro."""
    if topic in _declared:
        return _declared[topic]
    return (files("trueup.streams.journal") / "schemas" / f"{SCHEMAS[topic]}.avsc").read_text()


@cache
def _schema(topic: str) -> Any:
    return fastavro.parse_schema(json.loads(schema_text(topic)))


def encode(topic: str, record: Any) -> bytes:
    """The Avro body of one record: a mapping or a named tuple."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _schema(topic), record._asdict() if hasattr(record, "_asdict") else record)
    return out.getvalue()


def decode(topic: str, body: bytes, where: str = "") -> Any:
    """The record in an Avro body. ``where``: its position, for errors. Raises `BadBytes`."""
    return read(body, _schema(topic), where or topic, f"an Avro {SCHEMAS.get(topic, topic)}")


def read(body: bytes, schema: Any, where: str, expected: str) -> Any:
    """The record at the beginning of a body, by a parsed schema; further bytes are ignored. Raises `BadBytes`."""
    stream = io.BytesIO(body)
    try:
        return fastavro.schemaless_reader(stream, schema, None)
    except (ValueError, EOFError, IndexError, OverflowError, MemoryError, TypeError) as error:
        raise BadBytes(where, stream.tell(), expected, str(error)[:200] or "its end", "remove the record") from error


def topology_record(topology: Topology) -> dict[str, Any]:
    """A topology as a record of its topic."""
    names = ("epoch", "at_ms", "min_racks", "enforce_min_racks", "held", "released", "collect_ms", "restarted")
    keys = ("id", "rack", "status", "since_ms", "registered_zxid", "begun_zxid", "was")
    record: dict[str, Any] = {name: getattr(topology, name) for name in names}
    return {**record, "bookies": [{k: getattr(b, k) for k in keys} for b in topology.bookies]}


def topology_bytes(topology: Topology) -> bytes:
    """The Avro body of a topology."""
    return encode("topology", topology_record(topology))


def topology_of(record: dict[str, Any]) -> Topology:
    """The inverse of `topology_record`."""
    bookies = (Bookie(**{**b, "status": Status(b["status"]), "was": Status(b["was"])}) for b in record["bookies"])
    return Topology(**{**record, "bookies": tuple(bookies)})


def topology_from(body: bytes) -> Topology:
    """The inverse of `topology_bytes`."""
    return topology_of(decode("topology", body))


def ledger_key(ledger: int) -> bytes:
    """The key of records about one ledger: its id, 8 bytes big-endian."""
    return ledger.to_bytes(8, "big")
