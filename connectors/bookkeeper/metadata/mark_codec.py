r"""Marks, locks and votes: text protobuf, one field per line (``replica: "10.0.0.1:3181"\nctime: 1787000000000\n``).

BookKeeper 4.17 writes these with protobuf's TextFormat, 4.18 with LightProto, which has the same output and accepts
any input: an unknown field is skipped, garbage is an empty message. 4.17 rejects both, but its workers never read a
mark, they only delete it. Therefore this module also decodes unreadable bytes as an empty mark, and reports it.
"""

import re
from functools import lru_cache
from typing import Any, NamedTuple

from google.protobuf import text_format

from trueup.connectors.bookkeeper import messages
from trueup.connectors.protobuf import TextError, read_text

_PLAIN = re.compile(rb'((?:replica: "[^"\\\n]*"\n)*)(?:ctime: (\d{1,18})\n?)?\Z')
_QUOTED = re.compile(rb'"([^"]*)"')
_HOLDER = re.compile(rb'bookieId: "([^"\\\n]*)"\n?\Z')
_TEXTS = 1_024  # many marks have equal text, because bookies are lost together
_REMEMBERED_BYTES = 4_096
_ESCAPED = frozenset('"\\\n')


class Mark(NamedTuple):
    """An under-replication mark."""

    replicas: tuple[str, ...] = ()
    ctime_ms: int = -1
    """The field ctime of the mark, ms since the epoch; -1: absent."""
    whole: bool = True
    """Whether all fields were decoded."""


def decode(data: bytes) -> Mark:
    """The mark in these bytes; an empty one if they cannot be read."""
    return _known(data) if len(data) <= _REMEMBERED_BYTES else _decoded(data)


def _decoded(data: bytes) -> Mark:
    plain = _PLAIN.match(data)
    if plain:
        replicas = tuple(name.decode(errors="replace") for name in _QUOTED.findall(plain[1]))
        return Mark(replicas, int(plain[2]) if plain[2] else -1)
    message, whole = _parsed(data, messages.Mark())
    replicas = tuple(name.decode(errors="replace") for name in message.replica)
    return Mark(replicas, message.ctime if message.HasField("ctime") else -1, whole)


_known = lru_cache(_TEXTS)(_decoded)


@lru_cache(_TEXTS)
def encode(replicas: tuple[str, ...], ctime_ms: int) -> bytes:
    """The bytes of a mark. Without replicas it requests a placement repair. ``ctime_ms`` -1: omitted."""
    if any(not _ESCAPED.isdisjoint(name) for name in replicas):
        message = messages.Mark(replica=[name.encode() for name in replicas])
        if ctime_ms >= 0:
            message.ctime = ctime_ms
        return bytes(text_format.MessageToBytes(message))
    lines = [f'replica: "{name}"\n' for name in replicas]
    return "".join([*lines, f"ctime: {ctime_ms}\n" if ctime_ms >= 0 else ""]).encode()


def holder(data: bytes) -> str:
    """The bookie id in a lock or a vote; empty if there is none."""
    plain = _HOLDER.match(data)
    if plain:
        return plain[1].decode(errors="replace")
    message, _ = _parsed(data, messages.Vote())
    return str(message.bookieId.decode(errors="replace"))


def vote(bookie: str) -> bytes:
    """The bytes of a vote (or lock) of this bookie id."""
    return f'bookieId: "{bookie}"\n'.encode()


def _parsed(data: bytes, message: Any) -> tuple[Any, bool]:
    """The message, and whether all fields were known; an empty one if it is not text protobuf."""
    for lenient in (False, True):
        try:
            read_text(data, message, lenient)
        except TextError:
            message = type(message)()
        else:
            return message, not lenient
    return message, False
