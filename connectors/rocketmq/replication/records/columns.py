"""Messages of RocketMQ as records of `connectors.replication.ports`, and back. Nothing is lost on a way and back.

Message                            Record
KEYS                               key
body, decompressed                 value; an empty body with the mark of a null value in trueup-record: null
time of birth, or trueup-time      timestamp
trueup-source                      header trueup-source
TAGS, other properties             headers of the same names, in order
flag; properties with a meaning    header trueup-rocketmq, if there are any
for RocketMQ, repeated names
or values that are not text
trueup-record                      what no property can have: a key that is empty or not text; headers that are
                                   repeated, null, not text, or whose names RocketMQ reserves, with their places

Between two clusters of RocketMQ nothing is translated: properties pass byte for byte in one header (`names.RAW`), and
bodies stay compressed. Text is UTF-8 without the bytes 1 and 2, which separate properties.
"""

import struct
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, cast

from trueup.connectors.contract import Lease
from trueup.connectors.replication.headers import MARK
from trueup.connectors.replication.ports import Columns
from trueup.connectors.replication.remembered import Remembered
from trueup.connectors.rocketmq.protocol import flags
from trueup.connectors.rocketmq.protocol.block import Block
from trueup.connectors.rocketmq.protocol.compression import opened
from trueup.connectors.rocketmq.protocol.properties import MOST
from trueup.connectors.rocketmq.protocol.stored import Stored, decode
from trueup.connectors.rocketmq.replication.records import names
from trueup.connectors.rocketmq.replication.records.native import rows_of
from trueup.connectors.rocketmq.replication.records.plain import columns_of
from trueup.state.common.errors import BadBytes
from trueup.state.replication.provenance import HEADER

Header = tuple[str, bytes | None]
Pairs = list[tuple[bytes, bytes]]
_VALUE, _NEXT = names.VALUE, names.NEXT
_FLAG, _FLAGS = struct.Struct(">i"), struct.Struct(">ii")
_LENGTH, _ENTRY = struct.Struct(">i"), struct.Struct(">iii")
_NULL, _KEY = 1, 2
_LAST = (1 << 31) - 1
_DROPPED = names.STORED_BY_BROKER | names.OWN
_NOTED = _DROPPED | frozenset(names.PATHS)
_UNUSUAL = names.RESERVED - {names.KEYS} | frozenset(names.PATHS)
_LONG = 1 << 63
ROOM = 1 << 26
"""Bytes of decompressed bodies after which the records of one response end. The last one may exceed it: a response with
32 bodies of 8 KB could have 2 GB."""


def untouched(lease: Lease) -> bool:
    """Whether messages pass between two clusters of RocketMQ as they are. A transform receives the translated form."""
    return lease.source.system == lease.target.system and not lease.transform


class Decoder:
    """Converts stored messages to columns. ``raw``: for a writer of RocketMQ. ``called``: cluster names by the names
    that other replicators use for them."""

    def __init__(self, raw: bool, called: Mapping[bytes, bytes] | None = None) -> None:
        self.raw, self._called = raw, called or {}

    def columns(self, stored: Stored | Block, where: str, first: int = 0) -> tuple[Columns, str]:
        """The records from message ``first`` on, and why the last of them cannot be copied; empty: it can. There may be
        fewer records than messages: they end with one whose body cannot be decompressed, which has it as it is stored,
        or when they have `ROOM` bytes of decompressed bodies."""
        if isinstance(stored, Block):
            data = memoryview(stored.data)
            together = rows_of(stored, partial(self._columns_of, data, where)) if self.raw else columns_of(stored)
            if together is not None:
                return together.cut(first), ""
            stored = decode(data, where)
        each = self._as_it_is if self.raw else self._translated
        bodies, refused = (stored.bodies[first:], "") if self.raw else _opened(stored, where, first)
        chosen = slice(first, first + len(bodies))
        rows = [
            each(bytes(body), bytes(raw), flag, sys, born)
            for body, raw, flag, sys, born in zip(
                bodies, stored.properties[chosen], stored.flags[chosen], stored.sys[chosen], stored.born[chosen],
                strict=True,
            )
        ]  # fmt: skip
        keys, values, stamps, headers = zip(*rows, strict=True) if rows else ((), (), (), ())
        return Columns(stored.offsets[chosen], keys, values, stamps, headers), refused

    def _columns_of(self, data: memoryview, where: str) -> Columns:
        return self.columns(decode(data, where), where)[0]

    def _as_it_is(
        self, body: bytes, raw: bytes, flag: int, sys: int, born: int
    ) -> tuple[bytes | None, bytes | None, int, list[Header]]:
        found = dict([pair.split(_VALUE, 1) for pair in raw.split(_NEXT) if _VALUE in pair])
        usual = _NOTED.isdisjoint(found)
        if not usual:
            raw = b"".join([_joined((name, value)) for name, value in _pairs(raw) if name not in _DROPPED])
        elif raw and raw[-1:] != _NEXT:
            raw += _NEXT
        headers: list[Header] = [(names.RAW, raw)]
        if flag or sys & flags.KEPT:
            headers.append((names.FLAGS, _FLAGS.pack(flag, sys & flags.KEPT)))
        if usual:
            return found.get(names.KEYS), body, born, headers
        headers += self._path(found)
        return found.get(names.KEYS), body, _stamp(found, born), headers

    def _translated(
        self, value: bytes, raw: bytes, flag: int, _sys: int, born: int
    ) -> tuple[bytes | None, bytes | None, int, list[Header]]:
        pairs = _pairs(raw)
        found = dict(pairs)
        headers: list[Header]
        if not flag and raw.isascii() and _plain(raw, pairs, found):
            key = found.pop(names.KEYS, None)
            headers = [(str(name, "ascii"), each) for name, each in found.items()]
            return key, value, born, headers
        key, headers, odd = _sorted(pairs)
        record = _record_in(pairs)
        if record is not None:
            key = record.key if record.has_key else key
            for place, header in record.headers:
                headers.insert(place, header)
        if flag or odd:
            headers.append((names.NATIVE, _FLAG.pack(flag) + odd))
        headers += self._path(found)
        null = record is not None and record.null and not value
        return key, None if null else value, _stamp(found, born), headers

    def _path(self, found: Mapping[bytes, bytes]) -> list[Header]:
        """The header for the clusters passed, in the order in which the properties name them; none if there are none.

        Names are compared whole: a cluster whose name is a part of another's is another cluster.
        """
        tokens = (token for name in names.PATHS for token in found.get(name, b"").split(b","))
        passed = dict.fromkeys(self._called.get(token, token) for token in tokens if token)
        return [(HEADER, b",".join(passed))] if passed else []


def _opened(stored: Stored, where: str, first: int) -> tuple[Sequence[memoryview | bytes], str]:
    """The bodies for `Decoder.columns`, decompressed, and why the last one is not."""
    if not any(sys & flags.COMPRESSED for sys in stored.sys[first:]):
        return stored.bodies[first:], ""
    found, room = list[memoryview | bytes](), ROOM
    for body, sys in zip(stored.bodies[first:], stored.sys[first:], strict=True):
        if room <= 0:
            break
        try:
            found.append(opened(body, sys, where))
        except BadBytes as error:
            return [*found, body], str(error)
        room -= len(found[-1]) if sys & flags.COMPRESSED else 0
    return found, ""


class Messages(NamedTuple):
    """Messages to send to one queue, as columns; properties without the time. ``refused``: why the next record cannot
    be a message; empty if there is none. ``born``: the time of birth that a batch of them has."""

    bodies: list[bytes]
    properties: list[bytes]
    flags: list[int]
    sys: list[int]
    born: int
    refused: str = ""


class Encoder:
    """Converts columns to messages. ``raw``: they are those of a `Decoder` for a writer of RocketMQ."""

    def __init__(self, raw: bool = False) -> None:
        self._raw = raw
        self._paths, self._names = Remembered[bytes, bytes](), Remembered[str, bytes]()
        self._forms = Remembered[tuple[str, ...], bytes]()

    def messages(self, columns: Columns) -> Messages:
        """The messages for records, up to one whose properties are too long."""
        born = max(0, columns.stamps[0]) if columns.stamps else 0
        made = Messages([], [], [], [], born)
        for key, value, stamp, headers in zip(
            columns.keys, columns.values, columns.stamps, columns.headers, strict=True
        ):
            if self._raw:
                parts, flag, kept = self._untouched(headers)
            elif value is not None and (usual := self._usual(key, headers)):
                parts, flag, kept = [usual], 0, 0
            else:
                parts, flag, kept = self._translated(key, value, headers)
            if stamp != born:
                parts += names.TIME, _VALUE, b"%d" % stamp, _NEXT
            properties = b"".join(parts)
            if len(properties) > MOST:
                return made._replace(refused=f"{len(properties)} bytes of properties; at most {MOST} are possible")
            made.properties.append(properties)
            made.bodies.append(value or b"")
            made.flags.append(flag)
            made.sys.append(kept)
        return made

    def _untouched(self, headers: Sequence[Header]) -> tuple[list[bytes], int, int]:
        """Properties, flag and system flag of a message of RocketMQ. Most have no header besides its own and ours."""
        raw, flag, sys, rest = cast("bytes", headers[0][1]), 0, 0, headers[1:]
        if rest and rest[0][0] == names.FLAGS:
            flag, sys = _FLAGS.unpack(cast("bytes", rest[0][1]))
            rest = rest[1:]
        if len(rest) == len(_OURS) and (rest[0][0], rest[1][0]) == _OURS:
            path, mark = cast("bytes", rest[0][1]), cast("bytes", rest[1][1])
            return [raw, self._path(path), names.MARKED, b2a_base64(mark, newline=False), _NEXT], flag, sys
        return [raw, *self._translated(None, b"", rest, last=True)[0]], flag, sys

    def _usual(self, key: bytes | None, headers: Sequence[Header]) -> bytes:
        """The properties of a record of which each part becomes one; empty if there are other parts."""
        known, given = zip(*headers, strict=True) if headers else ((), ())
        form = self._forms.get(known)
        if form is None:
            form = self._forms.keep(known, len(known) + sum(map(len, known)), self._form(known))
        if not form or key == b"" or None in given or len(given[-1]) != _MARK_BYTES:
            return b""
        text = b"".join((key or b"", *given[:-2]))
        if not text.isascii() or _VALUE in text or _NEXT in text:
            return b""
        more = form % (*given[:-2], self._path(given[-2]), b2a_base64(given[-1], newline=False))
        return more if key is None else b"".join((names.KEYS, _VALUE, key, _NEXT, more))

    def _form(self, known: tuple[str, ...]) -> bytes:
        """A format for headers of these names, of which the last are ours; empty if others cannot be properties."""
        raw = [*map(self._name, known[:-2])]
        if known[-2:] != _OURS or not all(raw) or len(set(raw)) < len(raw):
            return b""
        return (
            b"".join([name.replace(b"%", b"%%") + b"%b" + _NEXT for name in raw]) + b"%b" + names.MARKED + b"%b" + _NEXT
        )

    def _translated(
        self, key: bytes | None, value: bytes | None, headers: Sequence[Header], last: bool = False
    ) -> tuple[list[bytes], int, int]:
        """Properties, flag and system flag. ``last``: other properties precede these."""
        parts, ours, left = list[bytes](), list[bytes](), list[tuple[int, Header]]()
        flag, place, native = 0, 0, b""
        if key and _is_text(key):
            parts += names.KEYS, _VALUE, key, _NEXT
            key = None
        repeated = _repeated(headers)
        for name, content in headers:
            if name == HEADER:
                ours.append(self._path(content or b""))
                continue
            if name == MARK and content is not None and len(content) == _MARK_BYTES:
                ours += names.MARKED, b2a_base64(content, newline=False), _NEXT
                continue
            if name == names.NATIVE and _is_native(content) and name not in repeated:
                flag, native = _FLAG.unpack_from(cast("bytes", content))[0], cast("bytes", content)[_FLAG.size :]
                continue
            known = self._name(name)
            if known and content is not None and name not in repeated and _is_text(content):
                parts += known, content, _NEXT
            else:
                left.append((_LAST if last else place, (name, content)))
            place += 1
        if left or value is None or key is not None:
            ours += names.RECORD, _VALUE, _record(value is None, key, left), _NEXT
        return [*parts, native, *ours], flag, 0

    def _name(self, name: str) -> bytes:
        """The name of a property with its separator; empty if no property can have it."""
        known = self._names.get(name)
        if known is None:
            raw = name.encode("utf-8", "surrogatepass")
            known = self._names.keep(name, len(name), raw + _VALUE if names.is_free(raw) and _is_text(raw) else b"")
        return known

    def _path(self, passed: bytes) -> bytes:
        """The properties for the clusters passed."""
        known = self._paths.get(passed)
        if known is None:
            text = passed.replace(_VALUE, b"?").replace(_NEXT, b"?")
            known = self._paths.keep(passed, len(passed), names.path_of(text) if text else b"")
        return known


_MARK_BYTES, _OURS = 16, (HEADER, MARK)


def mark_in(raw: bytes) -> tuple[bytes, int] | None:
    """Prefix and source offset in the stored properties of a copy, as `connectors.replication.headers.mark_of`; None if
    there is no mark, or an invalid one."""
    at = raw.rfind(names.MARKED)
    if at < 0 or (at and raw[at - 1] != _NEXT[0]):
        return None
    mark = _from_base64(raw[at + len(names.MARKED) :].partition(_NEXT)[0])
    if mark is None or len(mark) != _MARK_BYTES:
        return None
    return mark[:8], int.from_bytes(mark[8:], "big")


class _Record(NamedTuple):
    """The content of `names.RECORD`. ``headers``: with the place of each among all headers."""

    null: bool
    has_key: bool
    key: bytes | None
    headers: list[tuple[int, Header]]


def _pairs(raw: bytes) -> Pairs:
    """Names and values in order. Parts without a separator are ignored, as by RocketMQ."""
    return [(name, value) for name, sep, value in [pair.partition(_VALUE) for pair in raw.split(_NEXT)] if sep]


def _joined(pair: tuple[bytes, bytes]) -> bytes:
    return pair[0] + _VALUE + pair[1] + _NEXT


def _plain(raw: bytes, pairs: Pairs, found: Mapping[bytes, bytes]) -> bool:
    """Whether all ASCII properties become the key and headers."""
    return (
        _UNUSUAL.isdisjoint(found)
        and len(found) == len(pairs) == raw.count(_VALUE)
        and found.get(names.KEYS) != b""
        and b"" not in found
        and names.TRANSIENT not in raw
    )


def _sorted(pairs: Pairs) -> tuple[bytes | None, list[Header], bytes]:
    """Key and headers for properties, and those that can be neither."""
    key, headers, odd = None, list[Header](), list[bytes]()
    often = Counter(name for name, _ in pairs)
    for name, value in pairs:
        single = often[name] == 1 and _is_text(value)
        if name in _DROPPED or (name == names.RECORD and single and _record_of(value) is not None):
            continue
        if name == names.KEYS and single and value:
            key = value
        elif single and names.is_free(name) and _is_text(name):
            headers.append((str(name, "utf-8"), value))
        else:
            odd.append(_joined((name, value)))
    return key, headers, b"".join(odd)


def _stamp(found: Mapping[bytes, bytes], born: int) -> int:
    text = found.get(names.TIME, b"")
    digits = text.removeprefix(b"-")
    return int(text) if digits.isdigit() and len(digits) < len(str(_LONG)) else born


def _is_text(raw: bytes) -> bool:
    if _VALUE in raw or _NEXT in raw:
        return False
    if raw.isascii():
        return True
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _repeated(headers: Sequence[Header]) -> set[str]:
    found = {name for name, _ in headers}
    if len(found) == len(headers):
        return set()
    return {name for name, count in Counter(name for name, _ in headers).items() if count > 1}


def _is_native(content: bytes | None) -> bool:
    """Whether this is what `Decoder` wrote: a flag, and properties that no header can have."""
    if content is None or len(content) < _FLAG.size:
        return False
    raw = content[_FLAG.size :]
    pairs = _pairs(raw)
    whole = b"".join(map(_joined, pairs)) == raw and any(content)
    return whole and _DROPPED.isdisjoint(name for name, _ in pairs)


def _record(null: bool, key: bytes | None, headers: Iterable[tuple[int, Header]]) -> bytes:
    kind = (_NULL if null else 0) | (_KEY if key is not None else 0)
    parts = [bytes([kind])]
    if key is not None:
        parts += _LENGTH.pack(len(key)), key
    for place, (name, value) in headers:
        raw = name.encode("utf-8", "surrogatepass")
        parts += _ENTRY.pack(place, len(raw), -1 if value is None else len(value)), raw, value or b""
    return b2a_base64(b"".join(parts), newline=False)


def _record_in(pairs: Pairs) -> _Record | None:
    """The content of the property, if there is one that is valid."""
    found = [value for name, value in pairs if name == names.RECORD]
    return _record_of(found[0]) if len(found) == 1 else None


def _record_of(text: bytes) -> _Record | None:
    """The content of the property; None if it is invalid."""
    raw = _from_base64(text)
    if not raw or raw[0] & ~(_NULL | _KEY):
        return None
    at, key, headers = 1, None, list[tuple[int, Header]]()
    try:
        if raw[0] & _KEY:
            length = _LENGTH.unpack_from(raw, at)[0]
            key, at = _slice(raw, at + _LENGTH.size, length)
        while at < len(raw):
            place, length, size = _ENTRY.unpack_from(raw, at)
            name, at = _slice(raw, at + _ENTRY.size, length)
            value: bytes | None = None
            if size >= 0:
                value, at = _slice(raw, at, size)
            headers.append((max(0, place), (name.decode("utf-8", "surrogatepass"), value)))
    except (struct.error, ValueError):
        return None
    return _Record(bool(raw[0] & _NULL), bool(raw[0] & _KEY), key, headers)


def _slice(raw: bytes, at: int, length: int) -> tuple[bytes, int]:
    if not 0 <= length <= len(raw) - at:
        raise ValueError(length)
    return raw[at : at + length], at + length


def _from_base64(text: bytes) -> bytes | None:
    try:
        return a2b_base64(text, strict_mode=True)
    except (Base64Error, ValueError):
        return None
