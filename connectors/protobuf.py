"""Protobuf messages that are declared as text and built at run time, without generated code; detection of damage."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

_Field = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    "bool": _Field.TYPE_BOOL,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "bytes": _Field.TYPE_BYTES,
    "string": _Field.TYPE_STRING,
    "enum": _Field.TYPE_ENUM,
    "message": _Field.TYPE_MESSAGE,
}
_LABELS = {"required": _Field.LABEL_REQUIRED, "optional": _Field.LABEL_OPTIONAL, "repeated": _Field.LABEL_REPEATED}
_WIRES = {_Field.TYPE_BYTES: 2, _Field.TYPE_STRING: 2, _Field.TYPE_MESSAGE: 2}  # all other types used here are varints
_FIXED = {1: 8, 5: 4}
MOST_TEXT, LONGEST_LINE = 1 << 17, 1 << 13
"""Limits of text, in bytes: the parser needs up to 10 us for each, and for unknown fields also a time that grows with
the line. TextFormat writes one field per line; metadata of 1,000 fragments have 100 kB."""
SEARCHED = 1 << 20
"""Maximum bytes that are searched for the place of damage, at about 1.5 us each."""
_ESCAPE = re.compile(rb"\\([0-7]{1,3}|.?)", re.DOTALL)
_ESCAPES = frozenset(b"abfnrtvxX?'\"\\01234567")


def built(
    file: str, messages: Mapping[str, Sequence[str]], enums: Mapping[str, Sequence[str]] | None = None
) -> Callable[[str], Any]:
    """The classes of these proto2 messages, by name: ``"Outer.Inner": ["1 required int64 name", ...]``.

    The types enum and message are followed by the type's name with a leading dot. ``enums``: the names of the values of
    each enum, which are numbered from 1 on.
    """
    made_file = descriptor_pb2.FileDescriptorProto(name=file, syntax="proto2")
    descriptors: dict[str, Any] = {}
    for path, fields in messages.items():
        outer, _, name = path.rpartition(".")
        descriptors[path] = message = descriptors[outer].nested_type.add() if outer else made_file.message_type.add()
        message.name = name
        for line in fields:
            number, label, kind, field, *type_name = line.split()
            added = message.field.add(name=field, number=int(number), label=_LABELS[label], type=_TYPES[kind])
            if type_name:
                added.type_name = type_name[0]
    for path, values in (enums or {}).items():
        outer, _, name = path.rpartition(".")
        enum = descriptors[outer].enum_type.add(name=name)
        for at, value in enumerate(values, 1):
            enum.value.add(name=value, number=at)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(made_file)
    return lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


class TextError(ValueError):
    """Invalid text protobuf at byte ``at``. The text is not quoted, because it can contain a password."""

    def __init__(self, at: int) -> None:
        super().__init__(f"invalid text protobuf at byte {at}")
        self.at = at


def read_text(data: bytes, message: Any, lenient: bool) -> None:
    """Fill a message from text protobuf. ``lenient``: skip unknown fields. Raises `TextError`, also at the first byte
    beyond the limits."""
    if len(data) > MOST_TEXT:
        raise TextError(MOST_TEXT)
    start = 0
    for line in data.splitlines(keepends=True):
        if len(line) > LONGEST_LINE:
            raise TextError(start + LONGEST_LINE)
        start += len(line)
    for escape in _ESCAPE.finditer(data):
        # Python only warns about invalid escapes, and about octal ones beyond a byte.
        if not escape[1] or escape[1][0] not in _ESCAPES or (escape[1].isdigit() and int(escape[1], 8) > 0o377):
            raise TextError(escape.start())
    try:
        text_format.Merge(data.decode(), message, allow_unknown_field=lenient)
    except UnicodeDecodeError as error:
        raise TextError(error.start) from None
    except text_format.ParseError as error:
        lines = data.splitlines(keepends=True)[: max((error.GetLine() or 1) - 1, 0)]
        at = sum(map(len, lines)) + max((error.GetColumn() or 1) - 1, 0)
        raise TextError(min(at, len(data))) from None
    except (ValueError, OverflowError, RecursionError):
        raise TextError(0) from None


def varint(data: bytes, at: int, end: int | None = None) -> tuple[int, int]:
    """The value and its end; -1 if there is no varint of at most 10 bytes before ``end``."""
    value = shift = 0
    for place in range(at, min(at + 10, len(data) if end is None else end)):
        value |= (data[place] & 127) << shift
        shift += 7
        if data[place] < 128:
            return value, place + 1
    return 0, -1


def first_damage(data: bytes, at: int, end: int, kind: Any) -> int:
    """The first byte in this range that is not part of a message with this descriptor; ``end`` if there is none; ``at``
    if the range is longer than `SEARCHED`.

    Unknown fields are ignored; a known field of another type is damage.
    """
    if end - at > SEARCHED:
        return at
    while at < end:
        tag, after = varint(data, at, end)
        number, wire = tag >> 3, tag & 7
        field = kind.fields_by_number.get(number)
        if after < 0 or not number or wire not in (0, 1, 2, 5) or (field and not _fits(field, wire)):
            return at
        size, body = (_FIXED[wire], after) if wire in _FIXED else varint(data, after, end)
        following = body + (size if wire else 0)
        if body < 0 or following > end:
            return after
        if wire == 2 and field and field.message_type:
            inner = first_damage(data, body, following, field.message_type)
            if inner < following:
                return inner
        at = following
    return end


def _fits(field: Any, wire: int) -> bool:
    return wire == _WIRES.get(field.type, 0) or (wire == 2 and bool(field.is_repeated))
