"""The path of a record, which prevents loops: the clusters that it passed.

A cluster has a bit (0 to 31). In a system with producer ids, a batch that a link wrote has one of Trueup: a mark of 15
bits that brokers never assign (they count from 0), then the bitmap of the clusters that its records passed, then the
writer id of the link (setting ``flow``): ``mark << 48 | path << 16 | writer_id``. A producer id says who wrote this
very batch. Applications that copy the headers of a record do not copy it, so headers prove nothing: `HEADER`, which
contains the same path as tokens, is for people, and for systems without producer ids, which bind it to the message.
A token has the name and the bit of a cluster, as in ``east#0``. The bit counts: installations of Trueup that have
different clusters write and read the paths of one another.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from trueup.state.common.systems import CLUSTERS

HEADER = "trueup-source"
WHOLE = 0x5455
"""The mark of batches that were copied as they are. Their sequence numbers count all records of the producer id."""
SINGLE = range(0x5480, 0x5500)
"""The marks of batches of records that were copied one by one. Each producer chooses one of them."""
WRITERS = 1 << 16
DIGITS = 2
"""The maximum number of digits of a bit. An application may write any text into a header."""
_BIT = "#"


class Tag(NamedTuple):
    """The content of a producer id of Trueup."""

    path: int
    """The bitmap of the clusters that the records of the batch passed."""
    writer_id: int
    """The number of the link that wrote the batch."""
    whole: bool
    """Whether the batch was copied as it is, without being opened."""


def producer_id(path: int, writer_id: int, mark: int = WHOLE) -> int:
    """The producer id of batches that passed the clusters in ``path``, written by ``writer_id``. Raises ValueError."""
    if not 0 <= path < 1 << CLUSTERS or not 0 <= writer_id < WRITERS:
        raise ValueError(f"expected a path of {CLUSTERS} bits and a writer id of 16; found {path:#x} and {writer_id}")
    return mark << 48 | path << 16 | writer_id


def tag_of(producer_id: int) -> Tag | None:
    """The tag in a producer id; None for a batch that no link wrote."""
    mark = producer_id >> 48
    if mark != WHOLE and mark not in SINGLE:
        return None
    return Tag(producer_id >> 16 & (1 << CLUSTERS) - 1, producer_id & WRITERS - 1, mark == WHOLE)


class Refill(NamedTuple):
    """A source partition whose target lost its records and receives them again."""

    held: int
    """A source offset. The records below it had arrived at the target before the loss. They are written as having
    passed the target, so that the target's own links do not copy them a second time."""
    until: int
    """The end of the source at the start of the refill. Records below it that passed the target are copied there
    again."""


def onward(path: int | None, source_bit: int, target_bit: int, forward: bool) -> int | None:
    """The path for the record at the target; None: the record must not be copied there.

    ``path`` None: the record was produced at the source. Without ``forward`` only such records leave the source. A path
    that includes the source is that of a refilled record: it left the source before the source lost it.
    """
    if path is not None and (not forward or path >> source_bit & 1):
        return None
    passed = (path or 0) | 1 << source_bit
    return None if passed >> target_bit & 1 else passed


def refilled(path: int | None, source_bit: int, target_bit: int, forward: bool, held: bool) -> int | None:
    """`onward` for a record below `Refill.until`. ``held``: whether the record is below `Refill.held`. Without
    ``forward`` each cluster's own link copies the records produced there."""
    if path is not None and not forward and not path >> target_bit & 1:
        return None
    return (path or 0) | 1 << source_bit | (1 << target_bit if held else 0)


def token_of(name: str, bit: int) -> str:
    """A cluster in a path of tokens. The name, which may be empty, is for people: installations of Trueup may use
    different names for a cluster."""
    return f"{name}{_BIT}{bit}"


def bit_of(token: str) -> int | None:
    """The bit in a token; None: it is not one of a cluster with a bit."""
    _, separator, bit = token.rpartition(_BIT)
    if not separator or len(bit) > DIGITS or not bit.isascii() or not bit.isdecimal():
        return None
    return number if (number := int(bit)) < CLUSTERS else None


def tokens_of(value: bytes | None) -> tuple[str, ...]:
    """The tokens in a header's value. Invalid text equals no cluster's token."""
    return tuple(token for token in (value or b"").decode("utf-8", "backslashreplace").split(",") if token)


def birth_in(value: bytes) -> bytes:
    """The name of the first cluster in a header's value; its token if it has no name, or no bit."""
    token = value.partition(b",")[0]
    return token.rpartition(_BIT.encode())[0] or token


def tokens_bytes(tokens: Sequence[str]) -> bytes:
    """The value of a header."""
    return ",".join(tokens).encode()


def tokens_in(path: int, bits: Mapping[str, int]) -> tuple[str, ...]:
    """The tokens for a bitmap, with names by ``bits``; without the name for a cluster that is not among them."""
    names = {bit: name for name, bit in bits.items()}
    return tuple(token_of(names.get(bit, ""), bit) for bit in range(CLUSTERS) if path >> bit & 1)


def path_with(tokens: Iterable[str]) -> int:
    """The bitmap for tokens. A token without a bit is not in it."""
    path = 0
    for bit in map(bit_of, tokens):
        path |= 1 << bit if bit is not None else 0
    return path
