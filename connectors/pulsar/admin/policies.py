"""Offload policies of namespaces and topics, as a broker's admin API returns them (OffloadPoliciesImpl.java).

A policy may contain the credentials of the object store in clear text. An `OffloadPolicy` therefore shows only what
Trueup needs: the priority, the delay of deletions, and a digest of all other fields. A changed policy has the same
JSON with another priority, so that fields that Trueup does not know stay as they are.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from trueup.state.common.errors import Stop
from trueup.state.read_priority.policies import PolicyView
from trueup.state.read_priority.tiers import ReadPriority

FIELD, LAG, DRIVER = (
    "managedLedgerOffloadedReadPriority",
    "managedLedgerOffloadDeletionLagInMillis",
    "managedLedgerOffloadDriver",
)
NAMES = {"BOOKKEEPER_FIRST": ReadPriority.BOOKKEEPER_FIRST, "TIERED_STORAGE_FIRST": ReadPriority.TIERED_STORAGE_FIRST}
"""The names of the enum, which the API requires: it stores other texts as null, with status 204."""
NAME_OF = {priority: name for name, priority in NAMES.items()}
_SECRET = re.compile(r"credential|secret|password|token|key|ExtraConfigurations", re.IGNORECASE)
"""Names of fields that may contain credentials."""


class OffloadPolicy:
    """One policy. ``raw``: its JSON object, None: the level has no policy of its own. Its text shows no other field
    than the priority."""

    __slots__ = ("_raw",)

    def __init__(self, raw: Mapping[str, Any] | None) -> None:
        self._raw = None if raw is None else dict(raw)

    def __repr__(self) -> str:
        return f"OffloadPolicy({self.view()})"

    def view(self) -> PolicyView:
        """What Trueup uses of it. Raises `Stop` for values of another type."""
        if self._raw is None:
            return PolicyView()
        priority, lag_ms = _priority(self._raw.get(FIELD)), _lag(self._raw.get(LAG))
        return PolicyView(True, priority, lag_ms, _digest(self._raw), _digest(self.without_secrets().body()))

    def secrets(self) -> list[str]:
        """Texts that no error, log line or response may repeat."""
        values = [value for name, value in (self._raw or {}).items() if _SECRET.search(name)]
        return [text for value in values for text in _texts(value)]

    def with_priority(self, priority: ReadPriority | None) -> "OffloadPolicy":
        """The same policy with this priority, None: without one."""
        return OffloadPolicy({**(self._raw or {}), FIELD: NAME_OF[priority] if priority else None})

    def without_secrets(self) -> "OffloadPolicy":
        """The fields that have a value and are no credentials. A level that has none of these inherits them."""
        fields = {n: v for n, v in (self._raw or {}).items() if v is not None and not (v and _SECRET.search(n))}
        return OffloadPolicy(fields)

    def keeps(self, other: "OffloadPolicy") -> bool:
        """Whether all fields of another policy but the priority have the same value here."""
        mine = self._raw or {}
        return all(mine.get(n) == v for n, v in (other._raw or {}).items() if n != FIELD and v is not None)

    def body(self) -> dict[str, Any]:
        """The JSON object for a request. It may contain credentials."""
        return dict(self._raw or {})


def policy_of(response: Any, where: str) -> OffloadPolicy:
    """The policy in a response. Raises `Stop` if it is none."""
    if response in (None, "", "null"):
        return OffloadPolicy(None)
    if not isinstance(response, dict):
        raise Stop(f"an offload policy of {where}", "something else", "check the version of the broker")
    return OffloadPolicy(response)


def _digest(raw: Mapping[str, Any]) -> str:
    rest = {name: value for name, value in raw.items() if name != FIELD and value is not None}
    text = json.dumps(rest, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _texts(value: Any) -> Iterator[str]:
    """All texts in a value of a field."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from _texts(part)
    elif isinstance(value, str):
        yield value


def _priority(value: Any) -> ReadPriority | None:
    if value is None:
        return None
    priority = NAMES.get(value) if isinstance(value, str) else None
    if priority is None:
        raise Stop(f"{FIELD} {' or '.join(NAMES)}", "another value", "check the version of the broker")
    return priority


def _lag(value: Any) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise Stop(f"{LAG} in milliseconds", "another value", "check the version of the broker")
