"""Where a record has been, so that it never comes back: as a producer id of batches, or as a header of records.

A cluster has a bit (0 to 31). A batch that links carry has a producer id of Trueup's own: a 15-bit mark that no broker
hands out (they count from 0), then the bitmap of the clusters that it passed, then the flow of the link that wrote it:
``0x5455 << 48 | path << 16 | flow``. A record written one by one has the same path as names in a header.
"""

from collections.abc import Sequence
from typing import NamedTuple

HEADER = "trueup-source"
MARK = 0x5455
BITS, FLOWS = 32, 1 << 16


class Tag(NamedTuple):
    """What a producer id of ours says. ``path``: bitmap of clusters passed; ``flow``: the link that wrote it."""

    path: int
    flow: int


def producer_id(path: int, flow: int) -> int:
    """Producer id for batches that passed the clusters in ``path`` and are written by ``flow``. Raises ValueError."""
    if not 0 <= path < 1 << BITS or not 0 <= flow < FLOWS:
        raise ValueError(f"expected a path of {BITS} bits and a flow of 16; found {path:#x} and {flow}")
    return MARK << 48 | path << 16 | flow


def tag_of(producer_id: int) -> Tag | None:
    """The tag in a producer id; None for a batch that no link of ours wrote."""
    if producer_id >> 48 != MARK:
        return None
    return Tag(producer_id >> 16 & (1 << BITS) - 1, producer_id & FLOWS - 1)


class Refill(NamedTuple):
    """A source partition whose target lost what it had, and gets it again.

    Below source offset ``until``, the source's end when the refill began, records that passed the target go there once
    more. What is below ``held`` had arrived there before the loss: it is written as having passed the target, so that
    the target's own links do not send it on a second time.
    """

    held: int
    until: int


def onward(path: int | None, source_bit: int, target_bit: int, forward: bool) -> int | None:
    """The path to write with at the target; None: the record is not to go there.

    ``path`` None: born at the source. Without ``forward`` nothing else leaves the source. A path with the source itself
    is that of a refilled record: it left the source before the source lost it.
    """
    if path is not None and (not forward or path >> source_bit & 1):
        return None
    passed = (path or 0) | 1 << source_bit
    return None if passed >> target_bit & 1 else passed


def refilled(path: int | None, source_bit: int, target_bit: int, forward: bool, held: bool) -> int | None:
    """`onward` below `Refill.until`. ``held``: below `Refill.held`. Without ``forward`` each cluster's own link brings
    what was born there."""
    if path is not None and not forward and not path >> target_bit & 1:
        return None
    return (path or 0) | 1 << source_bit | (1 << target_bit if held else 0)


def tokens_of(value: bytes | None) -> tuple[str, ...]:
    """Names of the clusters passed, from a header's value. Bytes that are no text equal no cluster's name."""
    return tuple(name for name in (value or b"").decode("utf-8", "backslashreplace").split(",") if name)


def tokens_bytes(tokens: Sequence[str]) -> bytes:
    """A header's value."""
    return ",".join(tokens).encode()


def onward_tokens(tokens: Sequence[str], source: str, target: str, forward: bool) -> tuple[str, ...] | None:
    """The names to write at the target; None: the record is not to go there. Empty ``tokens``: born at the source."""
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
