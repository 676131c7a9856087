"""References to ledgers in Pulsar's znodes: managed ledgers, cursors, schemas (MetaStoreImpl, ManagedCursorImpl,
BookkeeperSchemaStorage).

Unknown fields are ignored; known fields of another type are not: a cursor must never pass for a managed
ledger without ledgers. Unreadable data raise `BadBytes`.
"""

import re
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from trueup.connectors.protobuf import SEARCHED, TextError, first_damage, read_text
from trueup.connectors.pulsar import compressed, messages
from trueup.connectors.pulsar.offload_index import uid_of
from trueup.state.common.errors import BadBytes
from trueup.state.deletion.offloads import ObjectPair, OffloadedCopy
from trueup.state.read_priority.tiers import LedgerInfo

COMPACTED = b"CompactedTopicLedger"
"""The property with a cursor's compacted ledger (Compactor)."""
SHADOW = b"PULSAR.SHADOW_SOURCE"
"""The property of a shadow topic with the name of its source (PIP-180, ManagedLedgerConfig). A shadow topic has no
ledgers of its own: a broker copies the source's list to its node when it loads it, and reads the source's node."""
BUCKET = b"#pulsar.internal.delayed.bucket"
"""Prefix of the properties with a cursor's ledgers of delayed messages (Bucket)."""
_TEXT = re.compile(rb"\s*(?:ledgerInfo|terminatedPosition|properties|cursorsLedgerId|markDelete\w+)\s*[:{]")
"""Prefixes of nodes that old versions wrote as text; binary nodes never have them."""
_DIGITS = re.compile(rb"\d{1,19}\Z")
_MOST_LEDGERS = 200_000
_MOST_UNKNOWN = 1 << 20
"""Maximum bytes of unknown fields: to check them takes up to 0.7 s."""
_SHOWN = 3
REMEDY = "restore it from a backup; nothing of its owner is deleted until then"


class ListedLedgers(NamedTuple):
    """The ledgers that a node references."""

    ledgers: tuple[int, ...]
    """The ids of the ledgers, in order."""
    dropped: tuple[int, ...] = ()
    """The ids, in order, of the ledgers whose BookKeeper ledger counts as deleted."""
    copies: tuple[OffloadedCopy, ...] = ()
    """The records of offloaded copies, including incomplete ones."""
    source: str = ""
    """The topic that owns the ledgers, if the node is that of a shadow topic; otherwise empty."""


def managed_ledger(data: bytes, where: str) -> ListedLedgers:
    """Ledgers that a managed ledger lists. A new one is empty and lists none. Raises `BadBytes`."""
    data, where = compressed.opened(data, where)
    message = _parsed(messages.ManagedLedger(), data, where)
    if len(message.ledgerInfo) > _MOST_LEDGERS:
        raise BadBytes(where, 0, f"at most {_MOST_LEDGERS} ledgers", str(len(message.ledgerInfo)), REMEDY)
    ids: set[int] = set()
    dropped: set[int] = set()
    copies: list[OffloadedCopy] = []
    for ledger in message.ledgerInfo:
        if ledger.ledgerId < 0:
            raise BadBytes(where, 0, "ids of ledgers", str(ledger.ledgerId), REMEDY)
        ids.add(ledger.ledgerId)
        if ledger.offloadContext.complete and ledger.offloadContext.bookkeeperDeleted:
            dropped.add(ledger.ledgerId)
        if ledger.offloadContext.HasField("uidMsb"):
            copies.append(_copy(ledger.ledgerId, ledger.offloadContext))
    source = next((pair.value.decode(errors="replace") for pair in message.properties if pair.key == SHADOW), "")
    return ListedLedgers(tuple(sorted(ids)), tuple(sorted(dropped)), tuple(sorted(copies)), source)


def topic_ledgers(data: bytes, where: str) -> tuple[list[LedgerInfo], str]:
    """The ledgers that a managed ledger lists, by id, each with its size and its offload; and the topic that owns
    them, if it is a shadow topic. Raises `BadBytes`."""
    source = managed_ledger(data, where).source  # rejects ids that are none
    data, where = compressed.opened(data, where)
    message = _parsed(messages.ManagedLedger(), data, where)
    ledgers = [
        LedgerInfo(
            info.ledgerId,
            info.entries,
            info.size,
            info.timestamp,
            _copy(info.ledgerId, info.offloadContext) if info.offloadContext.HasField("uidMsb") else None,
            info.offloadContext.bookkeeperDeleted,
            info.offloadContext.timestamp,
        )
        for info in message.ledgerInfo
    ]
    return sorted(ledgers, key=lambda info: info.ledger), source


def _copy(ledger: int, context: Any) -> OffloadedCopy:
    """Drivers and places that are not text are omitted."""
    more = {pair.key: pair.value.decode(errors="replace") for pair in context.driverMetadata.properties}
    pair = ObjectPair(uid_of(context.uidMsb, context.uidLsb), ledger)
    driver = context.driverMetadata.name.decode(errors="replace")
    return OffloadedCopy(pair, context.complete, driver, more.get(b"bucket", ""), more.get(b"serviceEndpoint", ""))


def cursor(data: bytes, where: str) -> tuple[ListedLedgers, bool]:
    """All ledgers that a cursor references: for its position, the compaction, delayed messages; and whether it
    stores its position in a ledger. Raises `BadBytes`."""
    data, where = compressed.opened(data, where)
    message = _parsed(messages.Cursor(), data, where)
    ledgers = [message.cursorsLedgerId]
    ledgers += [held.value for held in message.properties if held.name == COMPACTED]
    ledgers += [_bucket(held.value, where) for held in message.cursorProperties if held.name.startswith(BUCKET)]
    return ListedLedgers(_in_order(ledgers)), message.cursorsLedgerId >= 0


def schema(data: bytes, where: str) -> ListedLedgers:
    """Ledgers of all versions of a schema. Raises `BadBytes`."""
    message = schema_locator(data, where)
    return ListedLedgers(_in_order([entry.position.ledgerId for entry in (message.info, *message.index)]))


def schema_locator(data: bytes, where: str) -> Any:
    """The message in the node of a schema: `messages.Schema`. Raises `BadBytes`."""
    return _parsed(messages.Schema(), data, where)


def _in_order(ledgers: list[int]) -> tuple[int, ...]:
    """Distinct ids; a negative id stands for none."""
    return tuple(sorted({ledger for ledger in ledgers if ledger >= 0}))


def _bucket(value: bytes, where: str) -> int:
    if not _DIGITS.match(value) or int(value) >= 1 << 63:
        raise BadBytes(where, 0, f"the id of a ledger under {BUCKET.decode()}", repr(value[:32]), REMEDY)
    return int(value)


def _parsed(message: Any, data: bytes, where: str) -> Any:
    """Parse the message from binary or text form."""
    name = message.DESCRIPTOR.name
    if _TEXT.match(data):
        try:
            read_text(data, message, lenient=True)
        except TextError as error:
            raise BadBytes(where, error.at, f"{name} as text", "other text", REMEDY) from error
    else:
        _parse_binary(message, data, where)
    if not message.IsInitialized():
        fields = message.FindInitializationErrors()[:_SHOWN] if len(data) <= SEARCHED else ["all required fields"]
        raise BadBytes(where, 0, f"{name} with {', '.join(fields)}", "none", REMEDY)
    return message


def _parse_binary(message: Any, data: bytes, where: str) -> None:
    kind = message.DESCRIPTOR
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        place = first_damage(data, 0, len(data), kind)
        raise BadBytes(where, place, kind.name, "other bytes", REMEDY) from error
    if len(data) > _MOST_UNKNOWN and (size := _unknown_bytes(message)) > _MOST_UNKNOWN:
        raise BadBytes(where, 0, f"{kind.name} with at most {_MOST_UNKNOWN} bytes of unknown fields", str(size), REMEDY)
    unknown = UnknownFieldSet(message)
    if any(unknown[at].field_number in kind.fields_by_number for at in range(len(unknown))):
        place = first_damage(data, 0, len(data), kind)
        raise BadBytes(where, place, f"a field of {kind.name}", "a field of another type", REMEDY)


def _unknown_bytes(message: Any) -> int:
    """Bytes of the unknown fields of a message and of the messages in it."""
    copy = type(message)()
    copy.CopyFrom(message)
    copy.DiscardUnknownFields()
    return len(message.SerializePartialToString()) - len(copy.SerializePartialToString())
