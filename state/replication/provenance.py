"""The path of a record, which prevents loops: in the producer id of batches, or in a header of records.

A cluster has a bit (0 to 31). A batch that links copy has a producer id of Trueup: a 15-bit mark that brokers never
assign (they count from 0), then the bitmap of the clusters that it passed, then the writer id of the link that wrote it
(setting ``flow``): ``0x5455 << 48 | path << 16 | writer_id``. An individually written record has the same path as names
in a header.
"""

from collections.abc import Sequence
from typing import NamedTuple

HEADER = "trueup-source"
MARK = 0x5455
BITS, WRITERS = 32, 1 << 16


class Tag(NamedTuple):
    """The content of a producer id of Trueup. ``path``: bitmap of clusters passed; ``writer_id``: the link that wrote
    it."""

    path: int
    writer_id: int


def producer_id(path: int, writer_id: int) -> int:
    """The producer id of batches that passed the clusters in ``path``, written by ``writer_id``. Raises ValueError."""
    if not 0 <= path < 1 << BITS or not 0 <= writer_id < WRITERS:
        raise ValueError(f"expected a path of {BITS} bits and a writer id of 16; found {path:#x} and {writer_id}")
    return MARK << 48 | path << 16 | writer_id


def tag_of(producer_id: int) -> Tag | None:
    """The tag in a producer id; None for a batch that no link wrote."""
    if producer_id >> 48 != MARK:
        return None
    return Tag(producer_id >> 16 & (1 << BITS) - 1, producer_id & WRITERS - 1)


class Refill(NamedTuple):
    """A source partition whose target lost its records and receives them again.

    Below source offset ``until``, the source's end at the start of the refill, records that passed the target are
    copied there again. Records below ``held`` had arrived there before the loss: they are written as having passed the
    target, so that the target's own links do not copy them a second time.
    """

    held: int
    until: int


def onward(path: int | None, source_bit: int, target_bit: int, forward: bool) -> int | None:
    """The path for the record at the target; None: the record must not be copied there.

    ``path`` None: produced at the source. Without ``forward`` only such records leave the source. A path that includes
    the source is that of a refilled record: it left the source before the source lost it.
    """
    if path is not None and (not forward or path >> source_bit & 1):
        return None
    passed = (path or 0) | 1 << source_bit
    return None if passed >> target_bit & 1 else passed


def refilled(path: int | None, source_bit: int, target_bit: int, forward: bool, held: bool) -> int | None:
    """`onward` below `Refill.until`. ``held``: below `Refill.held`. Without ``forward`` each cluster's own link copies
    the records produced there."""
    if path is not None and not forward and not path >> target_bit & 1:
        return None
    return (path or 0) | 1 << source_bit | (1 << target_bit if held else 0)


def tokens_of(value: bytes | None) -> tuple[str, ...]:
    """Names of the clusters passed, from a header's value. Invalid text equals no cluster's name."""
    return tuple(name for name in (value or b"").decode("utf-8", "backslashreplace").split(",") if name)


def tokens_bytes(tokens: Sequence[str]) -> bytes:
    """The value of a header."""
    return ",".join(tokens).encode()


def onward_tokens(tokens: Sequence[str], source: str, target: str, forward: bool) -> tuple[str, ...] | None:
    """The names to write; None: the record must not be copied. Empty ``tokens``: produced at the source."""
    if tokens and (not forward or source in tokens):
        return None
    return None if target in (*tokens, source) else (*dict.fromkeys(tokens), source)


def refilled_tokens(
    tokens: Sequence[str], source: str, target: str, forward: bool, held: bool
) -> tuple[str, ...] | None:
    """`refilled` for a path of names."""
    if tokens and not forward and target not in tokens:
        return None
    return tuple(dict.fromkeys((*tokens, source, *([target] if held else []))))
