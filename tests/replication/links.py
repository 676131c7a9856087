"""Links without clusters, as the translation of group offsets uses them."""

import threading
from types import SimpleNamespace
from typing import Any

from trueup.connectors.contract import LogId
from trueup.state.replication.offset_map import OffsetMap
from trueup.streams.replication.links.checkpoints import Copy
from trueup.streams.replication.links.snapshot import ClusterSnapshot, LinkFacts, LinkSnapshot

LOG = LogId("orders", 0)


def fake_link(name: str, ends: tuple[str, str], forward: bool = False, mode: str = "enforce") -> Any:
    """A link of one log that copied nothing yet."""
    declared = SimpleNamespace(source=ends[0], target=ends[1], forward=forward, mode=mode)
    link = SimpleNamespace(
        name=name,
        declared=declared,
        copies={LOG: Copy(LOG, LOG, 0)},
        lock=threading.RLock(),
        snapshot=LinkSnapshot(LinkFacts(ClusterSnapshot({LOG.topic: [LOG]}), ClusterSnapshot(), 1)),
    )
    link.place = lambda log: log
    return link


def copied(name: str, *runs: tuple[int, int, int], until: int = 10, **more: Any) -> Any:
    """A link, named after its source and target, that copied these runs (source, target, records)."""
    source, _, target = name.partition("-")
    link = fake_link(name, (source, target), **more)
    link.copies[LOG].map = OffsetMap().extend(runs, until, 0, clear=until)
    return link
