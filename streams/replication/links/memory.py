"""What links remember besides positions, in the topic ``memory``: texts by name. LINK has the rights that the link
answers for, LINK/made the topics that it created at the target, and LINK/target the id of the target cluster."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from trueup.state.replication.config_sync import Right

MADE, CLUSTER = "made", "target"


def remembered(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """A record of the topic whose text its reader can parse. Raises one of `streams.journal.codec.WRONG`."""
    _, slash, what = record["name"].partition("/")
    if not slash:
        rights_from(record["value"])
    elif what == MADE:
        topics_from(record["value"])
    elif what != CLUSTER:
        raise ValueError(f"expected {MADE} or {CLUSTER} after the link; found {what!r:.100}")
    return record


def rights_from(text: str) -> list[Right]:
    """Rights from their text. Raises one of `streams.journal.codec.WRONG`."""
    return [Right(*_texts(right)) for right in _listed(text)]


def rights_text(rights: Iterable[Right]) -> str:
    """The inverse of `rights_from`."""
    return json.dumps(sorted(rights))


def topics_from(text: str) -> list[str]:
    """Topics from their text. Raises one of `streams.journal.codec.WRONG`."""
    return _texts(_listed(text))


def topics_text(topics: Iterable[str]) -> str:
    """The inverse of `topics_from`."""
    return json.dumps(sorted(topics))


def _listed(text: str) -> list[Any]:
    values = json.loads(text)
    if not isinstance(values, list):
        raise ValueError(f"expected a list; found {text!r:.100}")
    return values


def _texts(values: Any) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"expected a list of texts; found {values!r:.100}")
    return values
