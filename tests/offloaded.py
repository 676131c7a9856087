"""The two objects of an offloaded ledger in the format of Pulsar's offloader (BlobStoreManagedLedgerOffloader)."""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from trueup.connectors.pulsar import messages

PADDING = b"\xfe\xdc\xde\xad"
DATA = {"application": "pulsar", "component": "managed-ledger"}


class Written(NamedTuple):
    """Both objects. ``blocks``: first entry and offset of each block."""

    data: bytes
    index: bytes
    blocks: list[tuple[int, int]]


def offloaded(
    entries: Sequence[bytes],
    block: int = 1 << 20,
    owner: str = "t/ns/persistent/a",
    last: int | None = None,
    length: int | None = None,
    stops: bool = False,
) -> Written:
    """A ledger with these entries. A block has at most ``block`` bytes. ``stops``: an entry that fits into no block
    ends the ledger, which is completed anyway. ``last``, ``length``: values in the index.
    ``owner``: empty: the metadata of the ledger have no keys of Pulsar."""
    data, blocks, at = bytearray(), list[tuple[int, int]](), 0
    while at < len(entries):
        left = sum(len(entry) + 12 for entry in entries[at:]) + 128
        size, first, body = min(block, left), at, bytearray()
        while at < len(entries) and 128 + len(body) + 12 + len(entries[at]) <= size:
            body += struct.pack(">iq", len(entries[at]), at) + entries[at]
            at += 1
        if at == first:
            assert stops, "an entry that fits into no block"
            break
        blocks.append((first, len(data)))
        padding = (PADDING * (size // 4 + 1))[: size - 128 - len(body)]
        data += struct.pack(">Iqqq", 0xFBDBABCB, 128, size, first).ljust(128, b"\0") + body + padding
    total = sum(map(len, entries)) if length is None else length
    meta = metadata(len(entries) - 1 if last is None else last, total, owner)
    rows = b"".join(struct.pack(">qiq", first, part, offset) for part, (first, offset) in enumerate(blocks, 1))
    size = 32 + len(meta) + len(rows)
    head = struct.pack(">IiqqiI", 0xDE47DE47, size, len(data), 128, len(blocks), len(meta))
    return Written(bytes(data), head + meta + rows, blocks)


def metadata(last: int, length: int, owner: str, state: int = 3) -> bytes:
    message = messages.LedgerMetadata(lastEntryId=last, length=length, state=state)
    for name, value in {**DATA, "pulsar/managed-ledger": owner}.items() if owner else ():
        message.customMetadata.add(key=name.encode(), value=value.encode())
    made: bytes = message.SerializeToString()
    return made
