"""Which ledgers Pulsar's znodes point to: managed ledgers, cursors, schema locators (MetaStoreImpl, ManagedCursorImpl,
BookkeeperSchemaStorage).

Fields that are not known are left alone; known ones of another type are not: a cursor never passes for a managed
ledger that lists nothing. Whatever cannot be read raises `BadBytes`.
"""

import re
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from trueup.connectors.protobuf import TextError, first_damage, read_text
from trueup.connectors.pulsar import compressed, messages
from trueup.connectors.pulsar.offload_index import uid_of
from trueup.state.common.errors import BadBytes
from trueup.state.deletion.offloads import Copy, Pair

COMPACTED = b"CompactedTopicLedger"
"""The property under which the cursor of a compaction keeps its ledger (Compactor)."""
BUCKET = b"#pulsar.internal.delayed.bucket"
"""How the properties begin under which a cursor keeps ledgers of delayed messages (Bucket)."""
_TEXT = re.compile(rb"\s*(?:ledgerInfo|terminatedPosition|properties|cursorsLedgerId|markDelete\w+)\s*[:{]")
"""How nodes begin that old versions wrote as text; nothing binary does."""
_DIGITS = re.compile(rb"\d{1,19}\Z")
_TODO = "restore it from a backup; nothing of its owner is deleted until then"


class Listed(NamedTuple):
    """Ids of ledgers, in order. ``dropped``: those of them whose copy in BookKeeper counts as deleted. ``copies``: what
    is said of copies in tiered storage, also of those that never were completed."""

    ledgers: tuple[int, ...]
    dropped: tuple[int, ...] = ()
    copies: tuple[Copy, ...] = ()


def managed_ledger(data: bytes, where: str) -> Listed:
    """Ledgers that a managed ledger lists. One that was just made is empty, and lists none. Raises `BadBytes`."""
    data, where = compressed.opened(data, where)
    message = _parsed(messages.ManagedLedger(), data, where)
    ids: set[int] = set()
    dropped: set[int] = set()
    copies: list[Copy] = []
    for ledger in message.ledgerInfo:
        if ledger.ledgerId < 0:
            raise BadBytes(where, 0, "ids of ledgers", str(ledger.ledgerId), _TODO)
        ids.add(ledger.ledgerId)
        if ledger.offloadContext.complete and ledger.offloadContext.bookkeeperDeleted:
            dropped.add(ledger.ledgerId)
        if ledger.offloadContext.HasField("uidMsb"):
            copies.append(_copy(ledger.ledgerId, ledger.offloadContext))
    return Listed(tuple(sorted(ids)), tuple(sorted(dropped)), tuple(sorted(copies)))


def _copy(ledger: int, said: Any) -> Copy:
    """Names of drivers and places that are no text name no place."""
    more = {pair.key: pair.value.decode(errors="replace") for pair in said.driverMetadata.properties}
    pair = Pair(uid_of(said.uidMsb, said.uidLsb), ledger)
    driver = said.driverMetadata.name.decode(errors="replace")
    return Copy(pair, said.complete, driver, more.get(b"bucket", ""), more.get(b"serviceEndpoint", ""))


def cursor(data: bytes, where: str) -> tuple[Listed, bool]:
    """All ledgers that a cursor points to: of its position, of the compaction, of delayed messages; and whether it
    keeps its position in a ledger. Raises `BadBytes`."""
    data, where = compressed.opened(data, where)
    message = _parsed(messages.Cursor(), data, where)
    found = [message.cursorsLedgerId]
    found += [held.value for held in message.properties if held.name == COMPACTED]
    found += [_bucket(held.value, where) for held in message.cursorProperties if held.name.startswith(BUCKET)]
    return Listed(_in_order(found)), message.cursorsLedgerId >= 0


def schema(data: bytes, where: str) -> Listed:
    """Ledgers of all versions of a schema. Raises `BadBytes`."""
    message = _parsed(messages.Schema(), data, where)
    return Listed(_in_order([entry.position.ledgerId for entry in (message.info, *message.index)]))


def _in_order(ledgers: list[int]) -> tuple[int, ...]:
    """Each once; a negative id is how none is said."""
    return tuple(sorted({ledger for ledger in ledgers if ledger >= 0}))


def _bucket(value: bytes, where: str) -> int:
    if not _DIGITS.match(value) or int(value) >= 1 << 63:
        raise BadBytes(where, 0, f"the id of a ledger under {BUCKET.decode()}", repr(value[:32]), _TODO)
    return int(value)


def _parsed(message: Any, data: bytes, where: str) -> Any:
    """Fill the message from bytes, or from text."""
    name = message.DESCRIPTOR.name
    if _TEXT.match(data):
        try:
            read_text(data, message, strange=True)
        except TextError as error:
            raise BadBytes(where, error.at, f"{name} as text", "other text", _TODO) from error
    else:
        _parse_binary(message, data, where)
    if not message.IsInitialized():
        raise BadBytes(where, 0, f"{name} with {', '.join(message.FindInitializationErrors())}", "none", _TODO)
    return message


def _parse_binary(message: Any, data: bytes, where: str) -> None:
    kind = message.DESCRIPTOR
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        place = first_damage(data, 0, len(data), kind)
        raise BadBytes(where, place, kind.name, "other bytes", _TODO) from error
    strange = UnknownFieldSet(message)
    if any(strange[at].field_number in kind.fields_by_number for at in range(len(strange))):
        place = first_damage(data, 0, len(data), kind)
        raise BadBytes(where, place, f"a field as {kind.name} has it", "one of another type", _TODO)
