"""Frames of the remoting protocol and their headers (RemotingCommand.java, RemotingSerializable.java).

A frame is its length (int32, without itself), a word (high byte: encoding of the header, low 24 bits: its length), the
header, and the body; all numbers are big-endian. Headers in JSON are answered in JSON.
"""

import base64
import hashlib
import hmac
import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from trueup.state.common.errors import BadBytes

SIZE = struct.Struct(">i")
LARGEST = 1 << 26
"""Longer frames count as damage: RocketMQ itself accepts 16 MiB (com.rocketmq.remoting.frameMaxLength)."""
_LEAST = 4
_to_json = json.JSONEncoder(separators=(",", ":")).encode
_JSON, _HEADER_BITS = 0, 24
_VERSION = 479
"""MQVersion.V5_3_3. Name servers response versions before 4.9.4 (401) with routes that are not valid JSON."""
_IS_RESPONSE = 1
_KEY = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|(?<=[{,])\s*+-?\d++(?=\s*:)', re.DOTALL)
"""A text, also one without an end, or a number that is a key of an object. No part is matched twice: linear time."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials of a user."""

    access_key: str
    """The name of the user."""
    secret_key: str = field(repr=False)
    token: str = field(default="", repr=False)
    """The token of temporary credentials; empty if there is none."""


class FrameHeader(NamedTuple):
    """The header of a frame that a server sent."""

    code: int
    opaque: int
    response: bool
    """Whether the frame is a response. Otherwise it is a request or a notice of the server."""
    remark: str
    fields: Mapping[str, str]


def encoded(
    code: int,
    opaque: int,
    fields: Mapping[str, object],
    body: bytes | memoryview = b"",
    signer: Credentials | None = None,
) -> bytes:
    """A request, signed if there is a signer. Fields that are None are left out."""
    texts = {name: _text(value) for name, value in fields.items() if value is not None}
    if signer is not None:
        texts |= _signature(texts, body, signer)
    header = {
        "code": code,
        "language": "PYTHON",
        "version": _VERSION,
        "opaque": opaque,
        "flag": 0,
        "extFields": texts,
        "serializeTypeCurrentRPC": "JSON",
    }
    raw = _to_json(header).encode()
    return b"".join((struct.pack(">ii", 4 + len(raw) + len(body), len(raw)), raw, body))


def split(frame: memoryview, where: str) -> tuple[FrameHeader, memoryview]:
    """Header and body of a frame without its length. Raises `BadBytes`."""
    if len(frame) < _LEAST:
        raise _bad(where, 0, f"at least {_LEAST} bytes", str(len(frame)))
    word = int.from_bytes(frame[:_LEAST], "big")
    kind, size = word >> _HEADER_BITS, word & ((1 << _HEADER_BITS) - 1)
    if kind != _JSON:
        raise _bad(where, 0, "a header in JSON (0)", f"encoding {kind}")
    if size > len(frame) - _LEAST:
        raise _bad(where, 1, f"a header of at most {len(frame) - _LEAST} bytes", str(size))
    body = _LEAST + size
    return _header(parsed(frame[_LEAST:body], where), where), frame[body:]


def parsed(raw: memoryview | bytes, where: str) -> Any:
    """JSON in which keys may be numbers without quotes, as RocketMQ writes maps of integers. Raises `BadBytes`."""
    try:
        text = str(raw, "utf-8")
        try:
            return json.loads(text)
        except ValueError:
            return json.loads(_KEY.sub(_quoted, text))
    except (ValueError, RecursionError) as error:  # the second: lists in lists in lists
        raise _bad(where, 0, "JSON", str(error)[:100]) from error


def _quoted(match: re.Match[str]) -> str:
    word = match[0]
    return word if word.startswith('"') else f'"{word.strip()}"'


def _header(header: Any, where: str) -> FrameHeader:
    if not isinstance(header, dict):
        raise _bad(where, _LEAST, "an object as header", type(header).__name__)
    numbers: list[Any] = [header.get(name) for name in ("code", "opaque", "flag")]
    remark, fields = header.get("remark") or "", header.get("extFields") or {}
    sound = all(isinstance(n, int) for n in numbers) and isinstance(remark, str) and isinstance(fields, dict)
    if not sound or not all(isinstance(value, str) for value in fields.values()):
        raise _bad(where, _LEAST, "code, opaque, flag, remark and extFields", str(header)[:100])
    code, opaque, flag = numbers
    return FrameHeader(code, opaque, bool(flag & _IS_RESPONSE), remark, fields)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _signature(texts: Mapping[str, str], body: bytes | memoryview, signer: Credentials) -> dict[str, str]:
    """The signature of all values in the order of their names, and of the body (AclUtils.java)."""
    more = {"AccessKey": signer.access_key} | ({"SecurityToken": signer.token} if signer.token else {})
    signed = {**texts, **more}
    content = "".join(signed[name] for name in sorted(signed)).encode()
    code = hmac.new(signer.secret_key.encode(), content, hashlib.sha1)
    code.update(body)
    return {**more, "Signature": base64.b64encode(code.digest()).decode()}


def _bad(where: str, at: int, expected: str, found: str) -> BadBytes:
    return BadBytes(where, at, expected, found, "check the address")
