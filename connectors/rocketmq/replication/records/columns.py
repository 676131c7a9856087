"""Messages of RocketMQ as records of `connectors.replication.ports`, and back. Nothing is lost on a way and back.

Message                            Record
KEYS                               key
body, decompressed                 value; an empty body with the mark of a null value in trueup-record: null
time of birth, or trueup-time      timestamp
trueup-source, if a link wrote     header trueup-source
this very message (binding.py)
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
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import compress
from typing import NamedTuple, cast

from trueup.connectors.contract import Lease
from trueup.connectors.replication.headers import MARK
from trueup.connectors.replication.ports import Columns
from trueup.connectors.replication.remembered import BoundedCache
from trueup.connectors.rocketmq.protocol import flags
from trueup.connectors.rocketmq.protocol.block import Block
from trueup.connectors.rocketmq.protocol.compression import opened
from trueup.connectors.rocketmq.protocol.properties import MOST_SENT
from trueup.connectors.rocketmq.protocol.stored import StoredMessages, decode
from trueup.connectors.rocketmq.replication.records import names
from trueup.connectors.rocketmq.replication.records.binding import Binding
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
_LIGHT = f"{names.LIGHT[0].decode()}: its light queues cannot be copied; exclude the topic from the link"
_DROPPED = names.STORED_BY_BROKER | names.TAG
_NOTED = _DROPPED | names.FOREIGN
_UNUSUAL = names.RESERVED - {names.KEYS} | names.FOREIGN
_Row = tuple[bytes | None, bytes | None, int, list[Header], bool]
"""Key, value, timestamp and headers of a record, and whether its tag is foreign."""
ROOM = 1 << 26
"""Bytes of decompressed bodies after which the records of one response end. The last one may exceed it: a response with
32 bodies of 8 KB could have 2 GB."""


def native(lease: Lease) -> bool:
    """Whether messages pass between two clusters of RocketMQ."""
    return lease.source.system == lease.target.system


def untouched(lease: Lease) -> bool:
    """Whether messages pass between two clusters of RocketMQ as they are. A transform receives the translated form."""
    return native(lease) and not lease.transform


class _Head(NamedTuple):
    """What is stored with a message."""

    flag: int
    sys: int
    """The system flag."""
    born: int
    """The time of birth in ms since 1970."""
    size: int
    """The size of the body in bytes, as stored."""


class DecodedMessages(NamedTuple):
    """The records for messages."""

    columns: Columns
    refused: str = ""
    """The reason why the last record cannot be copied; empty if it can be copied."""
    foreign: Sequence[int] = ()
    """The offsets of messages with a tag that neither a link nor the declared replicator wrote. The records of these
    messages do not have the tag."""


class Decoder:
    """Converts stored messages to columns. ``raw``: whether the columns are for a writer of RocketMQ. ``replicated``:
    whether RocketMQ's own replicator writes to the cluster. ``called``: the clusters as in a path, by the names that
    RocketMQ's replicator uses for them. ``whole``: whether a message in light queues cannot be copied; other systems
    have no such queues."""

    def __init__(
        self, raw: bool, replicated: bool = False, called: Mapping[bytes, bytes] | None = None, whole: bool = False
    ) -> None:
        self.raw, self._replicated, self._called, self._whole = raw, replicated, called or {}, whole

    def columns(self, stored: StoredMessages | Block, binding: Binding, first: int = 0) -> DecodedMessages:
        """The records from message ``first`` of a queue on. There may be fewer records than messages: they end with one
        that cannot be copied, or when they have `ROOM` bytes of decompressed bodies. A body that cannot be decompressed
        is returned as it is stored."""
        where = f"messages of {binding.log}"
        if isinstance(stored, Block):
            data = memoryview(stored.data)
            together = rows_of(stored, partial(self._columns_of, data, binding)) if self.raw else columns_of(stored)
            if together is not None:
                return DecodedMessages(together.cut(first))
            stored = decode(data, where)
        converter = partial(self._as_it_is if self.raw else self._translated, binding)
        bodies, refused = (stored.bodies[first:], "") if self.raw else _opened(stored, where, first)
        if self._whole and (count := _before_light(stored.properties[first : first + len(bodies)])) is not None:
            bodies, refused = bodies[: count + 1], _LIGHT
        span = slice(first, first + len(bodies))
        sizes, offsets = map(len, stored.bodies[span]), stored.offsets[span]
        heads = map(_Head._make, zip(stored.flags[span], stored.sys[span], stored.born[span], sizes, strict=True))
        rows = [
            converter(bytes(body), bytes(raw), head)
            for body, raw, head in zip(bodies, stored.properties[span], heads, strict=True)
        ]
        keys, values, stamps, headers, wrong = zip(*rows, strict=True) if rows else ((), (), (), (), ())
        foreign = [*compress(offsets, wrong)]
        return DecodedMessages(Columns(offsets, keys, values, stamps, headers), refused, foreign)

    def _columns_of(self, data: memoryview, binding: Binding) -> Columns:
        return self.columns(decode(data, f"messages of {binding.log}"), binding).columns

    def _as_it_is(self, binding: Binding, body: bytes, raw: bytes, head: _Head) -> _Row:
        properties = dict([pair.split(_VALUE, 1) for pair in raw.split(_NEXT) if _VALUE in pair])
        usual = _NOTED.isdisjoint(properties)
        if not usual:
            raw = b"".join([_joined((name, value)) for name, value in _pairs(raw) if name not in _DROPPED])
        elif raw and raw[-1:] != _NEXT:
            raw += _NEXT
        headers: list[Header] = [(names.RAW, raw)]
        if head.flag or head.sys & flags.KEPT:
            headers.append((names.FLAGS, _FLAGS.pack(head.flag, head.sys & flags.KEPT)))
        if usual:
            return properties.get(names.KEYS), body, head.born, headers, False
        path, stamp, foreign = self._tag(binding, properties, head)
        return properties.get(names.KEYS), body, stamp, headers + path, foreign

    def _translated(self, binding: Binding, value: bytes, raw: bytes, head: _Head) -> _Row:
        pairs = _pairs(raw)
        properties = dict(pairs)
        headers: list[Header]
        if not head.flag and raw.isascii() and _plain(raw, pairs, properties):
            key = properties.pop(names.KEYS, None)
            headers = [(str(name, "ascii"), content) for name, content in properties.items()]
            return key, value, head.born, headers, False
        key, headers, odd = _sorted(pairs)
        path, stamp, foreign = self._tag(binding, properties, head)
        record = _record_in(pairs)
        if record is not None:
            key = record.key if record.has_key and names.KEYS not in properties else key
            for place, header in record.headers:
                if header[0] in _OURS:
                    foreign = True
                else:
                    headers.insert(place, header)
        if head.flag or odd:
            headers.append((names.NATIVE, _FLAG.pack(head.flag) + odd))
        null = record is not None and record.null and not value
        return key, None if null else value, stamp, headers + path, foreign

    def _tag(self, binding: Binding, properties: Mapping[bytes, bytes], head: _Head) -> tuple[list[Header], int, bool]:
        """The header for the clusters passed, the time of birth, and whether there is a foreign tag."""
        if names.FOREIGN.isdisjoint(properties):
            return [], head.born, False
        if (tag := binding.tag_of(properties, head.born, head.size)) is not None:
            return [(HEADER, tag.passed)], tag.time_ms, False
        passed = self._passed(properties) if self._replicated else b""
        return [(HEADER, passed)] if passed else [], head.born, not passed

    def _passed(self, properties: Mapping[bytes, bytes]) -> bytes:
        """The clusters passed in the order in which RocketMQ's replicator names them. Only a tag of Trueup has bits. A
        message that has parts of one was not written by the replicator: it renames them."""
        if names.SOURCE in properties:
            return b""
        values = ((name, properties.get(name, b"")) for name in names.OTHERS)
        texts = (value if name == names.CONNECTED else value.replace(b"#", b"?") for name, value in values)
        tokens = (token for text in texts for token in text.split(b","))
        return b",".join(dict.fromkeys(self._called.get(token, token) for token in tokens if token))


def _opened(stored: StoredMessages, where: str, first: int) -> tuple[Sequence[memoryview | bytes], str]:
    """The bodies for `Decoder.columns`, decompressed, and why the last one is not."""
    if not any(sys & flags.COMPRESSED for sys in stored.sys[first:]):
        return stored.bodies[first:], ""
    bodies, room = list[memoryview | bytes](), ROOM
    for body, sys in zip(stored.bodies[first:], stored.sys[first:], strict=True):
        if room <= 0:
            break
        try:
            bodies.append(opened(body, sys, where))
        except BadBytes as error:
            return [*bodies, body], str(error)
        room -= len(bodies[-1]) if sys & flags.COMPRESSED else 0
    return bodies, ""


def _before_light(properties: Sequence[memoryview | bytes]) -> int | None:
    """The number of messages before the first one in light queues; None if there is none."""
    return next((count for count, raw in enumerate(properties) if _is_light(bytes(raw))), None)


def _is_light(raw: bytes) -> bool:
    return all(names.value_in(raw, name).strip() for name in names.LIGHT)


class OutgoingMessages(NamedTuple):
    """Messages to send to one queue, as columns."""

    bodies: list[bytes]
    properties: list[bytes]
    flags: list[int]
    sys: list[int]
    """The system flag of each message. All messages of a batch must have the same one."""
    born: list[int]
    """The time of birth that each message must have in its batch, in ms since 1970."""
    refused: str = ""
    """The reason why the record after these messages cannot be a message; empty if there is no such record."""


class Encoder:
    """Converts columns to messages. ``raw``: whether a `Decoder` made the columns for a writer of RocketMQ."""

    def __init__(self, raw: bool = False) -> None:
        self._raw = raw
        self._paths, self._names = BoundedCache[bytes, bytes](), BoundedCache[str, bytes]()
        self._forms = BoundedCache[tuple[str, ...], bytes]()

    def messages(self, columns: Columns, binding: Binding) -> OutgoingMessages:
        """The messages of a queue for records, up to one whose properties are too long. Copies, whose last headers are
        those that the pump adds, have the time of birth of the first record, and their own in the tag."""
        outgoing = OutgoingMessages([], [], [], [], [])
        for key, value, stamp, headers in zip(
            columns.keys, columns.values, columns.stamps, columns.headers, strict=True
        ):
            given, own = _apart(headers)
            if self._raw:
                parts, flag, kept = self._untouched(given)
            elif value is not None and (usual := self._usual(key, given)):
                parts, flag, kept = [usual], 0, 0
            else:
                parts, flag, kept = self._translated(key, value, given)
            properties, born = b"".join(parts), columns.stamps[0] if own else stamp
            if own:
                properties += self._tag(binding, own, (born, stamp, len(value or b"")), properties)
            if len(properties) > MOST_SENT:
                return outgoing._replace(
                    refused=f"{len(properties)} bytes of properties; at most {MOST_SENT} are possible"
                )
            outgoing.properties.append(properties)
            outgoing.bodies.append(value or b"")
            outgoing.flags.append(flag)
            outgoing.sys.append(kept)
            outgoing.born.append(born)
        return outgoing

    def _tag(self, binding: Binding, own: tuple[bytes, bytes], times: tuple[int, int, int], properties: bytes) -> bytes:
        """The tag of a copy."""
        passed = self._paths.get(own[0])
        if passed is None:
            text = own[0].replace(_VALUE, b"?").replace(_NEXT, b"?")
            passed = self._paths.keep(own[0], len(text), text)
        born, stamp, size = times
        mark = binding.marked(passed, own[1], born, stamp, size, properties)
        late = b"" if stamp == born else b"".join((names.TIME, _VALUE, b"%d" % stamp, _NEXT))
        return b"".join((names.path_of(passed), names.MARKED, mark, _NEXT, late))

    def _untouched(self, headers: Sequence[Header]) -> tuple[list[bytes], int, int]:
        """Properties, flag and system flag of a message of RocketMQ. Most have no header besides its own and ours."""
        raw, flag, sys, rest = cast("bytes", headers[0][1]), 0, 0, headers[1:]
        if rest and rest[0][0] == names.FLAGS:
            flag, sys = _FLAGS.unpack(cast("bytes", rest[0][1]))
            rest = rest[1:]
        if not rest:
            return [raw], flag, sys
        return [raw, *self._translated(None, b"", rest, last=True)[0]], flag, sys

    def _usual(self, key: bytes | None, headers: Sequence[Header]) -> bytes:
        """The properties of a record of which each part becomes one; empty if there are other parts, or none."""
        titles, given = zip(*headers, strict=True) if headers else ((), ())
        form = self._forms.get(titles)
        if form is None:
            form = self._forms.keep(titles, len(titles) + sum(map(len, titles)), self._form(titles))
        if (titles and not form) or key == b"" or None in given:
            return b""
        text = b"".join((key or b"", *given))
        if not text.isascii() or _VALUE in text or _NEXT in text:
            return b""
        more = form % given
        return more if key is None else b"".join((names.KEYS, _VALUE, key, _NEXT, more))

    def _form(self, titles: tuple[str, ...]) -> bytes:
        """A format for headers of these names; empty if not all can be properties."""
        raw = [*map(self._name, titles)]
        if not all(raw) or len(set(raw)) < len(raw):
            return b""
        return b"".join([name.replace(b"%", b"%%") + b"%b" + _NEXT for name in raw])

    def _translated(
        self, key: bytes | None, value: bytes | None, headers: Sequence[Header], last: bool = False
    ) -> tuple[list[bytes], int, int]:
        """Properties, flag and system flag. ``last``: whether other properties precede these."""
        parts, left = list[bytes](), list[tuple[int, Header]]()
        flag, place, native = 0, 0, b""
        if key and _is_text(key):
            parts += names.KEYS, _VALUE, key, _NEXT
            key = None
        repeated = _repeated(headers)
        for name, content in headers:
            if name in _OURS:
                continue
            if name == names.NATIVE and _is_native(content) and name not in repeated:
                flag, native = _FLAG.unpack_from(cast("bytes", content))[0], cast("bytes", content)[_FLAG.size :]
                continue
            title = self._name(name)
            if title and content is not None and name not in repeated and _is_text(content):
                parts += title, content, _NEXT
            else:
                left.append((_LAST if last else place, (name, content)))
            place += 1
        if left or value is None or key is not None:
            native += b"".join((names.RECORD, _VALUE, _record(value is None, key, left), _NEXT))
        return [*parts, native], flag, 0

    def _name(self, name: str) -> bytes:
        """The name of a property with its separator; empty if no property can have it."""
        title = self._names.get(name)
        if title is None:
            raw = name.encode("utf-8", "surrogatepass")
            title = self._names.keep(name, len(name), raw + _VALUE if names.is_free(raw) and _is_text(raw) else b"")
        return title


_MARK_BYTES, _OURS = 16, (HEADER, MARK)


def _apart(headers: Sequence[Header]) -> tuple[Sequence[Header], tuple[bytes, bytes] | None]:
    """The headers of the record, and the path and mark of its copy, which are the last ones; None: it is no copy."""
    if len(headers) < len(_OURS) or (headers[-2][0], headers[-1][0]) != _OURS:
        return headers, None
    passed, mark = headers[-2][1], headers[-1][1]
    return headers[:-2], (passed, mark) if passed and mark and len(mark) == _MARK_BYTES else None


def mark_in(raw: bytes, born: int, size: int, binding: Binding) -> tuple[bytes, int] | None:
    """Prefix and source offset in the stored properties of a copy, as `connectors.replication.headers.mark_of`; None if
    no link wrote the message, which has this time of birth and size of the body."""
    if names.MARKED not in raw:
        return None
    tag = binding.tag_of(dict(_pairs(raw)), born, size)
    return None if tag is None else (tag.mark[:8], int.from_bytes(tag.mark[8:], "big"))


class _Record(NamedTuple):
    """The content of `names.RECORD`."""

    null: bool
    """Whether the value is null."""
    has_key: bool
    key: bytes | None
    headers: list[tuple[int, Header]]
    """The headers that no property can have, each with its place among all headers of the record."""


def _pairs(raw: bytes) -> Pairs:
    """Names and values in order. Parts without a separator are ignored, as by RocketMQ."""
    return [(name, value) for name, sep, value in [pair.partition(_VALUE) for pair in raw.split(_NEXT)] if sep]


def _joined(pair: tuple[bytes, bytes]) -> bytes:
    return pair[0] + _VALUE + pair[1] + _NEXT


def _plain(raw: bytes, pairs: Pairs, properties: Mapping[bytes, bytes]) -> bool:
    """Whether all ASCII properties become the key and headers."""
    return (
        _UNUSUAL.isdisjoint(properties)
        and len(properties) == len(pairs) == raw.count(_VALUE)
        and properties.get(names.KEYS) != b""
        and b"" not in properties
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
    distinct = {name for name, _ in headers}
    if len(distinct) == len(headers):
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
    return names.to_base64(b"".join(parts))


def _record_in(pairs: Pairs) -> _Record | None:
    """The content of the property, if there is one that is valid."""
    values = [value for name, value in pairs if name == names.RECORD]
    return _record_of(values[0]) if len(values) == 1 else None


def _record_of(text: bytes) -> _Record | None:
    """The content of the property; None if it is invalid."""
    raw = names.from_base64(text)
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
