"""Reads all ledgers of a cluster and folds them into losses: `trueup what-if`."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from trueup.connectors.bookkeeper.metadata import bulk, queries
from trueup.connectors.bookkeeper.metadata.racks import RackMap
from trueup.connectors.zookeeper.session import client_of
from trueup.state.common.errors import Refused
from trueup.state.placement.policy.regions import region_place
from trueup.state.placement.policy.zones import zone_place
from trueup.state.placement.what_if import FailureEffect, WhatIf
from trueup.state.settings.settings import Settings
from trueup.streams.bookkeeper.checks import OPEN_S, OpenCluster, loaded_racks, locations

RACK, BOOKIE, REGION, ZONE, GROUP = "rack", "bookie", "region", "zone", "group"
KINDS = (RACK, BOOKIE, REGION, ZONE, GROUP)


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
        racks = loaded_racks(OpenCluster(settings, client, paths))
        places = locations(racks, registered)
        parts = {bookie: _parts(kind, bookie, place, racks) for bookie, place in places.items()}
        writable = {*registered.writable}
        what = WhatIf(chosen(kind, names, parts), {*places}, writable | {*registered.readonly}, writable)
        unread = 0
        for batch in queries.snapshot(client, paths, 0):
            _fold(what, batch)
            unread += len(batch.forbidden) + len(batch.unreadable)
            read(what.ledgers)
    finally:
        client.shut()
    return WhatIfAnswer(what.losses, what.ledgers, sorted(what.missing), len(writable), unread)


def _parts(kind: str, bookie: str, rack: str, racks: RackMap) -> Sequence[str]:
    """What fails with this bookie, of this kind."""
    if kind in (REGION, ZONE):
        place = region_place(rack) if kind == REGION else zone_place(rack)
        return [place[0]] if place else []
    return [rack] if kind == RACK else (racks.groups(bookie) or ()) if kind == GROUP else [bookie]


def chosen(kind: str, names: Sequence[str], parts: Mapping[str, Sequence[str]]) -> dict[str, Set[str]]:
    """Bookies of each failure, by its name. ``parts``: racks, regions or the like of each bookie. A rack contains those
    below it. Raises `Refused`."""
    groups = defaultdict[str, set[str]](set)
    for bookie, own in parts.items():
        for part in own:
            groups[part].add(bookie)
    if not names:
        return {name: groups[name] for name in sorted(groups)}
    together = set[str]()
    for name in names:
        bookies = {
            member for group, some in groups.items() if group == name or group.startswith(f"{name}/") for member in some
        }
        if not bookies:
            raise Refused(
                f"a {kind} {name}",
                f"{kind}s {', '.join(sorted(groups)[:10]) or 'none'}",
                f"name a {kind} of the cluster",
            )
        together |= bookies
    return {" ".join(names): together}


def _fold(what: WhatIf, batch: bulk.LedgerBatch) -> None:
    what.add(batch.ledgers, batch.last_entry, batch.length.astype(np.float64), batch.first_entry)
