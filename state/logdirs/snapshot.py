"""The state of a broker's log directories as rows: one for each directory, and one for each copy in progress."""

from typing import NamedTuple

import numpy as np

from trueup.state.logdirs.model import Broker, skew


class Directory(NamedTuple):
    """One directory. Sizes are in bytes, -1 if unknown."""

    path: str
    volume: int
    """The number of the volume on its broker."""
    total: int
    """The size of the volume."""
    usable: int
    """The usable bytes of the volume."""
    online: bool
    cordoned: bool
    partitions: int
    bytes: int
    incoming: int
    outgoing: int


class Copying(NamedTuple):
    """A replica that is being moved. Sizes are in bytes."""

    topic: str
    partition: int
    source: str
    """The directory of the replica, empty if the replica itself is gone."""
    target: str
    bytes: int
    copied: int


class ObservedBroker(NamedTuple):
    """One broker at one time, ms since the epoch."""

    broker: int
    at_ms: int
    cordons: bool
    skew: float
    directories: tuple[Directory, ...]
    copying: tuple[Copying, ...]


class Replica(NamedTuple):
    """One replica, as `largest` lists them."""

    topic: str
    partition: int
    path: str
    bytes: int


def observed(broker: Broker, at_ms: int) -> ObservedBroker:
    """A broker in rows."""
    counts = np.bincount(broker.replicas.home, minlength=len(broker.dirs)).tolist()
    columns = zip(
        broker.dirs,
        broker.volumes.tolist(),
        counts,
        broker.held.tolist(),
        broker.incoming.tolist(),
        broker.outgoing.tolist(),
        strict=True,
    )
    directories = tuple(
        Directory(d.path, volume, d.total, d.usable, d.online, d.cordoned, count, held, coming, going)
        for d, volume, count, held, coming, going in columns
    )
    return ObservedBroker(broker.id, at_ms, broker.cordons, skew(broker), directories, _copying(broker))


def cordoned(broker: ObservedBroker, paths: frozenset[str] | None) -> ObservedBroker:
    """The snapshot after exactly these directories were cordoned; None: nothing was changed."""
    if paths is None:
        return broker
    return broker._replace(directories=tuple(d._replace(cordoned=d.path in paths) for d in broker.directories))


def largest(broker: Broker, count: int) -> list[Replica]:
    """The largest replicas, largest first."""
    rows = broker.replicas
    order = np.argsort(-rows.size, kind="stable")[:count].tolist()
    return [Replica(*rows.name(row), broker.dirs[rows.home[row]].path, int(rows.size[row])) for row in order]


def _copying(broker: Broker) -> tuple[Copying, ...]:
    rows, copies = broker.replicas, []
    for future, current in broker.moving:
        source = broker.dirs[rows.home[current]].path if current >= 0 else ""
        size = int(rows.size[current]) if current >= 0 else -1
        copies.append(
            Copying(*rows.name(future), source, broker.dirs[rows.home[future]].path, size, int(rows.size[future]))
        )
    return tuple(copies)
