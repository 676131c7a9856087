"""Reads all ledgers of a cluster and folds them into losses: `trueup what-if`."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from trueup.connectors.bookkeeper.metadata import bulk, queries
from trueup.connectors.zookeeper.session import client_of
from trueup.state.common.errors import Refused
from trueup.state.placement.what_if import FailureEffect, WhatIf
from trueup.state.settings.settings import Settings
from trueup.streams.bookkeeper.checks import OPEN_S, OpenCluster, locations

RACK, BOOKIE = "rack", "bookie"


@dataclass(frozen=True, slots=True)
class WhatIfAnswer:
    """The losses by failures of racks or bookies."""

    losses: Mapping[str, FailureEffect]
    """The losses by the name of the failure, and the loss without any failure as `NOW`."""
    ledgers: int
    missing: Sequence[str]
    """The bookies that are not registered now, including those that only ledgers name."""
    writable: int
    unread: int
    """The number of ledgers whose metadata are not readable."""


def answer(settings: Settings, kind: str, names: Sequence[str], read: Callable[[int], object]) -> WhatIfAnswer:
    """What each failure of this kind would do, or the failure of all ``names`` together. ``read``: called with the
    number of ledgers so far. Raises `Refused` for a name that does not exist, `Retry`, `Stop`."""
    client = client_of(settings.cluster)
    client.open(OPEN_S)
    try:
        paths = queries.paths_of(client, settings.cluster.ledgers_root)
        registered = queries.registered(client, paths)
        places = locations(OpenCluster(settings, client, paths), registered)
        writable = {*registered.writable}
        what = WhatIf(chosen(kind, names, places), {*places}, writable | {*registered.readonly}, writable)
        unread = 0
        for batch in queries.snapshot(client, paths, 0):
            _fold(what, batch)
            unread += len(batch.forbidden) + len(batch.unreadable)
            read(what.ledgers)
    finally:
        client.shut()
    return WhatIfAnswer(what.losses, what.ledgers, sorted(what.missing), len(writable), unread)


def chosen(kind: str, names: Sequence[str], places: Mapping[str, str]) -> dict[str, Set[str]]:
    """Bookies of each failure, by its name. A rack contains those below it. Raises `Refused`."""
    groups = defaultdict[str, set[str]](set)
    for bookie, rack in places.items():
        groups[rack if kind == RACK else bookie].add(bookie)
    if not names:
        return {name: groups[name] for name in sorted(groups)}
    together = set[str]()
    for name in names:
        bookies = {
            member for group, some in groups.items() if group == name or group.startswith(f"{name}/") for member in some
        }
        if not bookies:
            raise Refused(
                f"a {kind} {name}", f"{kind}s {', '.join(sorted(groups)[:10])}", f"name a {kind} of the cluster"
            )
        together |= bookies
    return {" ".join(names): together}


def _fold(what: WhatIf, batch: bulk.LedgerBatch) -> None:
    what.add(batch.ledgers, batch.last_entry, batch.length.astype(np.float64), batch.first_entry)
