"""Keeps a record of each topic of the journal, as a release wrote it. `python -m tests.formats` adds new topics.

Kept records are never replaced: there are journals that contain them.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trueup.streams.catalog import sections
from trueup.streams.journal.codec import encode
from trueup.streams.journal.topic import declared, topic_of

FILE = Path(__file__).parent / "unit" / "runtime" / "formats.json"
_NUMBERS = {"int": 7, "long": 1 << 40, "float": 0.5, "double": 0.25, "boolean": True}
_BYTES = b"\0kept"


def kept() -> dict[str, Any]:
    """By topic: ``schema``, ``record`` with bytes as text (latin-1), and ``body`` in hex."""
    found: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
    return found


def topics() -> list[str]:
    """The topics of the application: their schemas are files, unlike those of tests."""
    sections()
    return sorted(topic.name for topic in declared() if isinstance(topic.schema, str))


def example(schema: Any) -> Any:
    """A value of an Avro schema. Unions take their last branch, lists have one element."""
    kind = schema["type"] if isinstance(schema, Mapping) else schema
    if isinstance(kind, list):
        return example(kind[-1])
    if isinstance(kind, Mapping):
        return example(kind)
    match kind:
        case "record":
            return {field["name"]: example(field["type"]) for field in schema["fields"]}
        case "array":
            return [example(schema["items"])]
        case "map":
            return {"key": example(schema["values"])}
        case "enum":
            return schema["symbols"][-1]
        case "string":
            return "kept ü"
        case "bytes":
            return _BYTES
        case "null":
            return None
    return _NUMBERS[kind]


def shown(value: Any) -> Any:
    """A record without bytes, which JSON does not know."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, Mapping):
        return {name: shown(one) for name, one in value.items()}
    return [shown(one) for one in value] if isinstance(value, list | tuple) else value


def main() -> None:
    """Add what is missing."""
    found = kept()
    for name in topics():
        if name not in found:
            schema = json.loads(topic_of(name).text)
            record = example(schema)
            found[name] = {"schema": schema, "record": shown(record), "body": encode(name, record).hex()}
    FILE.write_text(json.dumps(found, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
