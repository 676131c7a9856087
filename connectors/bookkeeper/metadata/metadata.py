r"""Ledger metadata, one znode at a time (LedgerMetadataSerDe, LedgerMetadataBuilder, LedgerMetadataImpl).

Every version starts with ``BookieMetadataFormatVersion\t<n>\n``. Then 1: lines; 2: text protobuf; 3: binary protobuf
after its length. Rejects what BookKeeper rejects. For many znodes at once see `connectors.bookkeeper.metadata.bulk`.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from trueup.connectors.bookkeeper.messages import LedgerMetadata
from trueup.connectors.protobuf import TextError, first_damage, read_text, varint
from trueup.state.bookkeeper.ledgers import MANY
from trueup.state.bookkeeper.observations import FragmentRecord, LedgerRecord, LedgerState
from trueup.state.common.counts import many
from trueup.state.common.errors import BadBytes, Refused

KEY = b"BookieMetadataFormatVersion\t"
_VERSION_DIGITS = 10
_V1_IN_RECOVERY = -102
_V1_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_INTEGER = re.compile(rb"([+-]?)0*([0-9]{1,19})\Z")  # as Java parses it, with any number of leading zeros
_BOOKIE = re.compile(r"[a-zA-Z0-9:-_.\-]+\Z")
_QUOTED = re.compile(rb"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|#[^\n]*")
_NUMBER_FOR_NAME = re.compile(rb"(?:(?:\A|[\s{<;,}>])([0-9]+)\s*[:{<])|(?:\b(?:state|digestType)\s*:\s*([0-9]))")
_TODO = "restore the znode from a backup or delete the ledger"
SIZES = range(1, 1 << 16)
"""Larger ensembles and quorums count as damage."""


class ZnodeSource(NamedTuple):
    """The znode of the bytes, and its stat. Times are in ms since the epoch."""

    ledger: int
    path: str
    mzxid: int
    version: int
    ctime_ms: int
    seen_ms: int


def decode(data: bytes, where: ZnodeSource) -> LedgerRecord:
    """The ledger in these bytes, without its password. Raises `BadBytes` with the znode and the byte."""
    version, at = _header(data, where.path)
    if version == 1:
        return _decode_v1(data, at, where)
    message, at = _message(version, data, at, where.path)
    return _record(message, where, at)


def protection(data: bytes, path: str) -> tuple[int, bytes] | None:
    """Digest type and password of the ledger in these bytes, None if they are absent. Raises `BadBytes`.

    The password is for the immediate read or copy of entries: it must never be stored, shown or logged.
    """
    version, at = _header(data, path)
    message = None if version == 1 else _message(version, data, at, path)[0]
    if message is None or not message.HasField("digestType"):
        return None
    return message.digestType, message.password


def unreadable(where: ZnodeSource, error: BadBytes) -> LedgerRecord:
    """The record of an unreadable ledger."""
    return _as_record(where, LedgerState.UNREADABLE, (0, 0, 0), (-1, 0), [], where.ctime_ms, {}, str(error))


def gone(ledger: int, zxid: int, seen_ms: int) -> LedgerRecord:
    """The record of a ledger that was deleted, at or before ``zxid``."""
    where = ZnodeSource(ledger, "", zxid, -1, -1, seen_ms)
    return _as_record(where, LedgerState.GONE, (0, 0, 0), (-1, 0), [], -1, {})


def entries(record: LedgerRecord) -> int:
    """`state.bookkeeper.ledgers.Ledgers.entries` of one ledger."""
    if record["state"] != LedgerState.CLOSED or not record["fragments"]:
        return MANY
    first = record["fragments"][-1]["first_entry"]
    held = max(0, min(record["last_entry"] - first + 1, MANY))
    return held if not held or not first else MANY


def valid_bookie(name: str) -> bool:
    """Whether BookKeeper accepts a bookie id (BookieId; its class of characters runs from ``:`` to ``_``)."""
    return _BOOKIE.match(name) is not None and name.lower() != "readonly"


def encode(record: LedgerRecord, version: int = 3, password: bytes | None = b"", digest: int = 1) -> bytes:
    """The bytes as BookKeeper would write them. For tests and benchmarks: Trueup creates no ledgers."""
    if version == 1:
        return KEY + b"1\n" + _encode_v1(record)
    message = LedgerMetadata(
        quorumSize=record["quorum"],
        ensembleSize=record["ensemble"],
        length=record["length"],
        lastEntryId=record["last_entry"],
        state=record["state"],
        ackQuorumSize=record["ack_quorum"],
    )
    if record["ctime_ms"] >= 0:
        message.ctime = record["ctime_ms"]
    if password is not None:
        message.password, message.digestType = password, digest
    for fragment in record["fragments"]:
        members = [bookie.encode() for bookie in fragment["bookies"]]
        message.segment.add(ensembleMember=members, firstEntryId=fragment["first_entry"])
    for key, value in record["custom"].items():
        message.customMetadata.add(key=key.encode(), value=value)
    if version == 3:
        message.cToken = 0
    return written(message, version)


def message_of(data: bytes, path: str) -> tuple[Any, int]:
    """The message in these bytes and their format, to be changed and `written` again without a loss. Raises `BadBytes`,
    and `Refused` for format 1, which has no message, and for text with fields that are not known."""
    version, at = _header(data, path)
    if version == 1:
        raise Refused(f"metadata of format 2 or 3 in {path}", "format 1", "leave the ledger to BookKeeper's workers")
    if version != 2:
        return _message(version, data, at, path)[0], version
    message = LedgerMetadata()
    try:
        read_text(data[at:], message, lenient=False)
    except TextError as error:
        found = f"other text at byte {at + error.at}"
        raise Refused(f"known fields in {path}", found, "leave the ledger to BookKeeper's workers") from error
    return message, version


def written(message: Any, version: int) -> bytes:
    """A message as metadata of format 2 or 3."""
    head = KEY + b"%d\n" % version
    if version == 2:
        return head + bytes(text_format.MessageToBytes(message))
    body: bytes = message.SerializeToString()
    return head + _varint(len(body)) + body


def _header(data: bytes, path: str) -> tuple[int, int]:
    """The version, and the offset of the body."""
    if not data.startswith(KEY):
        same = next((at for at, (a, b) in enumerate(zip(data, KEY, strict=False)) if a != b), len(data))
        _bad(path, same, repr(KEY.decode()), "other bytes")
    end = data.find(b"\n", len(KEY), len(KEY) + _VERSION_DIGITS)
    digits = data[len(KEY) : max(end, 0)]
    if not _INTEGER.match(digits):
        _bad(path, len(KEY), "a version number and a newline", "other bytes")
    return int(digits), end + 1


def _message(version: int, data: bytes, at: int, path: str) -> tuple[Any, int]:
    """The message of versions 2 and 3, and its offset."""
    message = LedgerMetadata()
    if version == 2:
        _parse_text(data, at, message, path)
    elif version == 3:
        at = _parse_binary(data, at, message, path)
    else:
        _bad(path, len(KEY), "metadata format 1, 2 or 3", str(version))
    return message, at


def _parse_binary(data: bytes, at: int, message: Any, path: str) -> int:
    """Fill the message and return its offset."""
    size, start = varint(data, at)
    if start < 0 or size > len(data) - start:
        _bad(path, at, f"the length of a message of at most {len(data) - at} bytes", str(size))
    try:
        message.ParseFromString(data[start : start + size])
    except DecodeError as error:
        place = first_damage(data, start, start + size, message.DESCRIPTOR)
        raise BadBytes(path, place, "ledger metadata", "other bytes", _TODO) from error
    return start


def _parse_text(data: bytes, at: int, message: Any, path: str) -> None:
    """Accept text that 4.17 accepts as a whole, or that 4.18 accepts."""
    with suppress(TextError):
        read_text(data[at:], message, lenient=False)
        return
    message.Clear()
    try:
        _parse_text_leniently(data[at:], message)
    except TextError as error:
        raise BadBytes(path, at + error.at, "ledger metadata as text", "other text", _TODO) from error


def _parse_text_leniently(text: bytes, message: Any) -> None:
    """Parse like 4.18: unknown fields are skipped; numbers instead of names, and a password without a
    digestType, are rejected."""
    number = _NUMBER_FOR_NAME.search(_QUOTED.sub(_blank, text))
    if number is not None:
        raise TextError(number.start())
    read_text(text, message, lenient=True)
    if message.HasField("password") and not message.HasField("digestType"):
        raise TextError(0)


def _blank(quoted: re.Match[bytes]) -> bytes:
    return b" " * len(quoted[0])


def _record(message: Any, where: ZnodeSource, at: int) -> LedgerRecord:
    """The record of a message at offset ``at``."""
    if not message.IsInitialized():
        _bad(where.path, at, f"the fields {', '.join(message.FindInitializationErrors())}", "none")
    fragments = [_fragment(segment.firstEntryId, segment.ensembleMember, where.path, at) for segment in message.segment]
    quorum = message.quorumSize
    ack = message.ackQuorumSize if message.HasField("ackQuorumSize") else quorum
    sizes = (message.ensembleSize, quorum, ack)
    closed = message.state == LedgerState.CLOSED
    _check(fragments, sizes, where.path, at)
    return _as_record(
        where,
        message.state,
        sizes,
        # BookKeeper ignores the last entry and the length of an unclosed ledger.
        (message.lastEntryId, message.length) if closed else (-1, 0),
        fragments,
        message.ctime if message.HasField("ctime") else where.ctime_ms,
        {entry.key.decode(errors="replace"): entry.value for entry in message.customMetadata},
    )


def _decode_v1(data: bytes, at: int, where: ZnodeSource) -> LedgerRecord:
    """Quorum, ensemble, length; one line per fragment; ``<last entry>\tCLOSED`` ends it, whatever follows."""
    numbers: list[int] = []
    fragments: list[FragmentRecord] = []
    state, last = LedgerState.OPEN, -1
    while at < len(data):
        line = _V1_LINE.match(data, at)
        assert line is not None, "the pattern also matches an empty line"
        parts = line[0].rstrip(b"\r\n").split(b"\t")
        first = _integer(parts[0], where.path, at)
        if len(numbers) < 3:
            if len(parts) > 1:
                _bad(where.path, at, "one number on the line", many(len(parts), "field"))
            numbers.append(first)
        elif len(parts) == 1:
            _bad(where.path, at, "a fragment", "a single field")
        elif parts[1] == b"CLOSED":
            state = LedgerState.IN_RECOVERY if first == _V1_IN_RECOVERY else LedgerState.CLOSED
            last = first if state == LedgerState.CLOSED else -1
            break
        else:
            fragments.append(_fragment(first, _without_trailing_empty(parts[1:]), where.path, at))
        at = line.end()
    if len(numbers) < 3:
        _bad(where.path, len(data), "write quorum, ensemble and length", many(len(numbers), "line"))
    quorum, ensemble, length = numbers
    _check(fragments, (ensemble, quorum, quorum), where.path, at)
    end = (last, length) if state == LedgerState.CLOSED else (-1, 0)
    return _as_record(where, state, (ensemble, quorum, quorum), end, fragments, -1, {})


def _without_trailing_empty(parts: list[bytes]) -> list[bytes]:
    while parts and not parts[-1]:
        parts.pop()
    return parts


def _fragment(first: int, members: Sequence[bytes], path: str, at: int) -> FragmentRecord:
    names = [member.decode("utf-8", "replace") for member in members]
    for name in names:
        if not valid_bookie(name):
            _bad(path, at, "a bookie id", f"another text of {len(name)} characters")
    return {"first_entry": first, "bookies": names}


def _check(fragments: list[FragmentRecord], sizes: tuple[int, int, int], path: str, at: int) -> None:
    """The rules of LedgerMetadataBuilder and LedgerMetadataImpl."""
    ensemble, quorum, ack = sizes
    if ensemble not in SIZES or not ensemble >= quorum >= ack or quorum not in SIZES:
        _bad(path, at, "ensemble >= write quorum >= ack quorum", f"{ensemble}, {quorum}, {ack}")
    if not fragments:
        _bad(path, at, "at least one fragment", "none")
    before = None
    for fragment in fragments:
        if len(fragment["bookies"]) != ensemble:
            _bad(path, at, f"{many(ensemble, 'bookie')} in a fragment", str(len(fragment["bookies"])))
        if before is not None and fragment["first_entry"] <= before:
            _bad(path, at, f"a fragment that starts after entry {before}", str(fragment["first_entry"]))
        before = fragment["first_entry"]


def _as_record(
    where: ZnodeSource,
    state: int,
    sizes: tuple[int, int, int],
    end: tuple[int, int],
    fragments: list[FragmentRecord],
    ctime_ms: int,
    custom: dict[str, bytes],
    error: str = "",
) -> LedgerRecord:
    return {
        "ledger": where.ledger,
        "mzxid": where.mzxid,
        "version": where.version,
        "ctime_ms": ctime_ms,
        "seen_ms": where.seen_ms,
        "state": int(state),
        "ensemble": sizes[0],
        "quorum": sizes[1],
        "ack_quorum": sizes[2],
        "last_entry": end[0],
        "length": end[1],
        "fragments": fragments,
        "custom": custom,
        "error": error,
    }


def _encode_v1(record: LedgerRecord) -> bytes:
    lines = [record["quorum"], record["ensemble"], record["length"]]
    body = "".join(f"{number}\n" for number in lines)
    body += "".join("\t".join([str(f["first_entry"]), *f["bookies"]]) + "\n" for f in record["fragments"])
    if record["state"] == LedgerState.CLOSED:
        body += f"{record['last_entry']}\tCLOSED"
    elif record["state"] == LedgerState.IN_RECOVERY:
        body += f"{_V1_IN_RECOVERY}\tCLOSED"
    return body.encode()


def _integer(digits: bytes, path: str, at: int) -> int:
    match = _INTEGER.match(digits)
    value = int(match[1] + match[2]) if match else 1 << 63
    if not -(2**63) <= value < 2**63:
        _bad(path, at, "a number of 64 bits", f"{len(digits)} other bytes")
    return value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _bad(path: str, at: int, expected: str, found: str) -> NoReturn:
    """``found`` must not quote the znode: in case of damage any bytes can be the ledger's password."""
    raise BadBytes(path, at, expected, found, _TODO)
