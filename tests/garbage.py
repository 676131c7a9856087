"""Records that others write into the topics of a journal: six kinds for each topic."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.formats import example, topics
from trueup.streams.journal.codec import encode
from trueup.streams.journal.topic import topic_of

_MOST, _LEAST = (1 << 63) - 1, -(1 << 63)
TOPICS = topics()


class Garbage(NamedTuple):
    """One record. ``key`` and ``body`` as they are written."""

    kind: str
    key: bytes
    body: bytes | None


def of(what: str) -> list[Garbage]:
    """The records for a topic. Most keys have 8 bytes: tasks read no others of the topics of ledgers."""
    schema = json.loads(topic_of(what).text)
    sound = encode(what, example(schema))
    key = b"\0" * 7 + b"\7"
    return [
        Garbage("a key that is no UTF-8", b"\xff\xfe\x80", sound),
        Garbage("a key of another length", b"k" * 20, sound),
        Garbage("an empty body", key, b""),
        Garbage("JSON", b"somejson", b'{"mode": "enforce"}'),
        Garbage("bytes", b"somebyte", bytes(range(255, 100, -1))),
        Garbage("the highest numbers", b"thehighs", encode(what, _extreme(schema, _MOST))),
        Garbage("the lowest numbers", b"thelowst", encode(what, _extreme(schema, _LEAST))),
        Garbage("a deletion", b"\xff" * 21, None),
    ]


def _extreme(schema: Any, number: int) -> Any:
    """A value of an Avro schema whose numbers are out of range."""
    kind = schema["type"] if isinstance(schema, Mapping) else schema
    if isinstance(kind, list):
        return _extreme(kind[-1], number)
    if isinstance(kind, Mapping):
        return _extreme(kind, number)
    match kind:
        case "record":
            return {field["name"]: _extreme(field["type"], number) for field in schema["fields"]}
        case "array":
            return [_extreme(schema["items"], number)]
        case "map":
            return {"key": _extreme(schema["values"], number)}
        case "int":
            return (1 << 31) - 1 if number > 0 else -(1 << 31)
        case "long":
            return number
    return example(schema)
