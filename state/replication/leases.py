"""The topics that a link copies, their names at the target, and the assignment of partitions to tasks."""

import re
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, Protocol, TypeVar
from zlib import crc32

from trueup.state.common.patterns import matches
from trueup.state.common.systems import TOOLS, internal


class _Ordered(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


P = TypeVar("P", bound=_Ordered)


def writer_id_of(link: str, source_bit: int, writer_id: int = 0) -> int:
    """A number, 1 to 65535, that distinguishes the records of this link at its target: ``writer_id``, or derived from
    its name and source. Installations of Trueup with different sources may use one name."""
    return writer_id or crc32(f"{link}#{source_bit}".encode()) % 0xFFFF + 1


def topics_of(
    patterns: Sequence[str], exclude: Sequence[str], names: Iterable[str], prefix: str = "trueup"
) -> list[str]:
    """Those of ``names`` that a link copies, sorted, without internal topics. Topics of tools are copied only if
    ``patterns`` name them: no expression chooses them."""
    return sorted(
        name
        for name in set(names)
        if (name in patterns or (not name.startswith(TOOLS) and matches(patterns, name)))
        and not matches(exclude, name)
        and not internal(name, prefix)
    )


def target_of(topic: str, rename: str = "{topic}", into: str = "", source: str = "") -> str:
    """The name of a topic at the target. ``{topic}`` and ``{source}`` (the source cluster) in ``rename`` are replaced;
    ``into`` overrides ``rename``."""
    return into or re.sub(r"\{(topic|source)\}", lambda match: {"topic": topic, "source": source}[match[1]], rename)


def divide(weights: Mapping[P, float], tasks: int) -> list[list[P]]:
    """Divide partitions into at most ``tasks`` leases of similar weight: heaviest first, each to the lightest lease,
    among equals to the one with fewer partitions. Equal weights give equal leases; none is empty.
    """
    leases: list[list[P]] = [[] for _ in range(min(tasks, len(weights)))]
    loads = [(0.0, 0, at) for at in range(len(leases))]
    heapify(loads)
    for partition in sorted(sorted(weights), key=lambda partition: -weights[partition]):
        load, count, at = heappop(loads)
        leases[at].append(partition)
        heappush(loads, (load + weights[partition], count + 1, at))
    return [sorted(lease) for lease in leases]
