"""The schemas of a topic (BookkeeperSchemaStorage, SchemaRegistryServiceImpl).

A znode, SchemaLocator of SchemaStorageFormat.proto, lists the versions of a schema, each with ledger and entry. The
entry is a SchemaEntry, whose data are a SchemaInfo of SchemaRegistryFormat.proto.
"""

from enum import IntEnum
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from trueup.connectors.protobuf import built
from trueup.connectors.pulsar.metadata import schema_locator
from trueup.state.common.errors import BadBytes

_message = built(
    "pulsar_schemas.proto",
    {
        "SchemaEntry": ["2 required bytes schema_data"],
        "SchemaInfo": ["3 required int32 type", "4 required bytes schema", "6 required bool deleted"],
    },
)
SchemaEntry, SchemaInfo = _message("SchemaEntry"), _message("SchemaInfo")
_TODO = "read the values as bytes, or register the schema again"


class SchemaType(IntEnum):
    """Types of schemas (SchemaRegistryFormat.proto)."""

    NONE = 1
    STRING = 2
    JSON = 3
    PROTOBUF = 4
    AVRO = 5
    BOOLEAN = 6
    INT8 = 7
    INT16 = 8
    INT32 = 9
    INT64 = 10
    FLOAT = 11
    DOUBLE = 12
    DATE = 13
    TIME = 14
    TIMESTAMP = 15
    KEYVALUE = 16
    INSTANT = 17
    LOCALDATE = 18
    LOCALTIME = 19
    LOCALDATETIME = 20
    PROTOBUFNATIVE = 21


class SchemaPlace(NamedTuple):
    """Where a version of a schema is stored."""

    version: int
    ledger: int
    entry: int


class StoredSchema(NamedTuple):
    """A version of a schema."""

    version: int
    kind: int
    """A `SchemaType`, or the number of an unknown type."""
    definition: bytes
    """The content of the schema: for AVRO and JSON, an Avro schema as JSON."""
    deleted: bool
    """Whether the topic has had no schema since this version."""


def schema_places(data: bytes, where: str) -> list[SchemaPlace]:
    """All versions in a locator, by version. Raises `BadBytes`."""
    locator = schema_locator(data, where)
    places = {
        entry.version: SchemaPlace(entry.version, entry.position.ledgerId, entry.position.entryId)
        for entry in (*locator.index, locator.info)
        if entry.position.ledgerId >= 0
    }
    return [places[version] for version in sorted(places)]


def schema_of(payload: bytes, version: int, where: str) -> StoredSchema:
    """The schema in an entry. Raises `BadBytes`."""
    data = _parsed(SchemaEntry(), payload, where).schema_data
    if not data:
        return StoredSchema(version, SchemaType.NONE, b"", deleted=True)
    info = _parsed(SchemaInfo(), data, where)
    return StoredSchema(version, info.type, info.schema, info.deleted)


def version_of(raw: bytes) -> int:
    """The version that a message names: the first 8 bytes as a number; old producers write 64 bytes."""
    return int.from_bytes(raw[:8], "big", signed=True)


def _parsed(message: Any, data: bytes, where: str) -> Any:
    name = message.DESCRIPTOR.name
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise BadBytes(where, 0, name, "other bytes", _TODO) from error
    if not message.IsInitialized():
        raise BadBytes(where, 0, f"all required fields of {name}", "other fields", _TODO)
    return message
