"""Which topics a link copies, what they are called at the target, and who copies which partition."""

import re
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, Protocol, TypeVar
from zlib import crc32

from trueup.state.common.patterns import matches
from trueup.state.common.systems import internal


class _Ordered(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


P = TypeVar("P", bound=_Ordered)


def flow_of(link: str, flow: int = 0) -> int:
    """Number, 1 to 65535, that tells what this link wrote from what others did: ``flow``, or derived from its name."""
    return flow or crc32(link.encode()) % 0xFFFF + 1


def topics_of(
    patterns: Sequence[str], exclude: Sequence[str], names: Iterable[str], prefix: str = "trueup"
) -> list[str]:
    """Those of ``names`` that a link copies, sorted. Internal topics are never among them."""
    return sorted(
        name
        for name in set(names)
        if matches(patterns, name) and not matches(exclude, name) and not internal(name, prefix)
    )


def target_of(topic: str, rename: str = "{topic}", into: str = "", source: str = "") -> str:
    """What a topic is called at the target. ``{topic}`` and ``{source}`` (the source cluster) in ``rename`` are filled
    in; ``into`` takes the place of it all."""
    return into or re.sub(r"\{(topic|source)\}", lambda found: {"topic": topic, "source": source}[found[1]], rename)


def divide(weights: Mapping[P, float], tasks: int) -> list[list[P]]:
    """Partitions over at most ``tasks`` leases so that the heaviest has little to spare: heaviest first, each to the
    lightest lease, the one with fewer partitions among equals. The same weights give the same leases; none is empty.
    """
    leases: list[list[P]] = [[] for _ in range(min(tasks, len(weights)))]
    loads = [(0.0, 0, at) for at in range(len(leases))]
    heapify(loads)
    for partition in sorted(sorted(weights), key=lambda partition: -weights[partition]):
        load, count, at = heappop(loads)
        leases[at].append(partition)
        heappush(loads, (load + weights[partition], count + 1, at))
    return [sorted(lease) for lease in leases]
