"""The protobuf messages of BookKeeper's znodes (DataFormats.proto), built here: no generated code, no jar.

Strings are declared as bytes: the wire is the same, and text that is not UTF-8 is ours to judge.
"""

import re
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

_Field = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    "int32": _Field.TYPE_INT32, "int64": _Field.TYPE_INT64, "bytes": _Field.TYPE_BYTES, "string": _Field.TYPE_STRING,
    "enum": _Field.TYPE_ENUM, "message": _Field.TYPE_MESSAGE,
}  # fmt: skip
_LABELS = {"required": _Field.LABEL_REQUIRED, "optional": _Field.LABEL_OPTIONAL, "repeated": _Field.LABEL_REPEATED}
_FORMAT = "LedgerMetadataFormat"
_MESSAGES: dict[str, list[str]] = {
    _FORMAT: [
        "1 required int32 quorumSize",
        "2 required int32 ensembleSize",
        "3 required int64 length",
        "4 optional int64 lastEntryId",
        f"5 required enum state .{_FORMAT}.State",
        f"6 repeated message segment .{_FORMAT}.Segment",
        f"7 optional enum digestType .{_FORMAT}.DigestType",
        "8 optional bytes password",
        "9 optional int32 ackQuorumSize",
        "10 optional int64 ctime",
        f"11 repeated message customMetadata .{_FORMAT}.cMetadataMapEntry",
        "12 optional int64 cToken",
    ],
    f"{_FORMAT}.Segment": ["1 repeated bytes ensembleMember", "2 required int64 firstEntryId"],
    f"{_FORMAT}.cMetadataMapEntry": ["1 optional bytes key", "2 optional bytes value"],
    "UnderreplicatedLedgerFormat": ["1 repeated bytes replica", "2 optional int64 ctime"],
    "AuditorVoteFormat": ["1 optional bytes bookieId"],
    "BookieServiceInfoFormat": ["6 repeated message endpoints .BookieServiceInfoFormat.Endpoint"],
    "BookieServiceInfoFormat.Endpoint": [
        "1 required string id",
        "2 required int32 port",
        "3 required string host",
        "4 required string protocol",
    ],
}
_ENUMS = {
    "State": ("OPEN", "IN_RECOVERY", "CLOSED"),
    "DigestType": ("CRC32", "HMAC", "CRC32C", "DUMMY"),
}


def _build() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto(name="bookkeeper.proto", syntax="proto2")
    made: dict[str, Any] = {}
    for path, fields in _MESSAGES.items():
        outer, _, name = path.rpartition(".")
        made[path] = message = made[outer].nested_type.add() if outer else file.message_type.add()
        message.name = name
        for line in fields:
            number, label, kind, field, *type_name = line.split()
            made_field = message.field.add(name=field, number=int(number), label=_LABELS[label], type=_TYPES[kind])
            if type_name:
                made_field.type_name = type_name[0]
    for name, values in _ENUMS.items():
        enum = made[_FORMAT].enum_type.add(name=name)
        for at, value in enumerate(values, 1):
            enum.value.add(name=value, number=at)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


_pool = _build()


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(name))


LedgerMetadata = _message(_FORMAT)
Mark = _message("UnderreplicatedLedgerFormat")
Vote = _message("AuditorVoteFormat")
ServiceInfo = _message("BookieServiceInfoFormat")

_ESCAPE = re.compile(rb"\\(.?)", re.DOTALL)
_ESCAPES = frozenset(b"abfnrtvxX?'\"\\01234567")


class TextError(ValueError):
    """No text protobuf from byte ``at`` on. Never quotes the text, which may hold a password."""

    def __init__(self, at: int) -> None:
        super().__init__(f"no text protobuf from byte {at} on")
        self.at = at


def read_text(data: bytes, message: Any, strange: bool) -> None:
    """Fill a message from text protobuf. ``strange``: fields that are not known are skipped. Raises `TextError`."""
    for escape in _ESCAPE.finditer(data):
        # Python only warns of these.
        if not escape[1] or escape[1][0] not in _ESCAPES:
            raise TextError(escape.start())
    try:
        text_format.Merge(data.decode(), message, allow_unknown_field=strange)
    except UnicodeDecodeError as error:
        raise TextError(error.start) from None
    except text_format.ParseError as error:
        lines = data.splitlines(keepends=True)[: max((error.GetLine() or 1) - 1, 0)]
        at = sum(map(len, lines)) + max((error.GetColumn() or 1) - 1, 0)
        raise TextError(min(at, len(data))) from None
    except (ValueError, OverflowError, RecursionError):
        raise TextError(0) from None
