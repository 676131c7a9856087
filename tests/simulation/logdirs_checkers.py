"""Checks of log directories, against the true state of the brokers and what they reported to Trueup.

A request is judged by the report from which Trueup decided: Kafka has no requests with a condition, so what another
client changes between the report and the request is not detected. Kafka has no fence either: a request of a process
that was stopped within a pass, and goes on after a takeover, counts as a request of another client. No such process
begins another pass.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tests.simulation.broker_dirs import OTHER, TRUEUP, BrokerSettings, DirectoryBroker, Partition
from tests.simulation.checkers import Violation
from tests.simulation.journal import JournalLog
from tests.simulation.model import World
from trueup.connectors.kafka.logdirs.client import ReplicaLocation
from trueup.state.logdirs.lifecycle import UNDER_WAY, Relocation
from trueup.state.logdirs.model import Broker
from trueup.state.logdirs.settings import LogDirsSettings
from trueup.state.logdirs.snapshot import observed
from trueup.state.logdirs.verdicts import NOTHING, OwnChanges
from trueup.streams.logdirs.reconciler import BrokerState, LogDirsReconciler
from trueup.streams.logdirs.topics import CHANGES
from trueup.streams.runtime.stream import PlanRow

NEAR = 0.012
"""Directories whose usable bytes differ by at most 1% count as one volume."""
EXPLAINED = ("logdirs.no-move", "logdirs.headroom")


class BrokerSighting(NamedTuple):
    """What Trueup knows of a broker in a pass."""

    broker: Broker
    shown: BrokerSettings
    rooms: Mapping[str, int]
    """The usable bytes of each directory after the moves in progress."""
    movers: Mapping[Partition, str]
    """The clients of the moves in progress."""
    skew: float
    """The largest skew for an observer who does not know all bytes that are being deleted."""
    throttle: tuple[int, str] | None = None
    """The throttle that Trueup queried or set, and the client that set it; None: neither."""


def sighting(broker: DirectoryBroker) -> BrokerSighting:
    """A report of the broker."""
    rooms = {d.path: broker.usable(d.disk) - broker.coming(d.disk) for d in broker.dirs}
    movers = {name: one.mover for name, one in broker.moves().items()}
    return BrokerSighting(broker.report(), broker.shown, rooms, movers, broker.skew(True))


class LogDirCheckers:
    """The checks of one run."""

    def __init__(self, world: World, log: JournalLog, brokers: Mapping[int, DirectoryBroker], name: str) -> None:
        self._world, self._log, self._brokers, self._name = world, log, brokers, name
        self.approved = set[tuple[object, ...]]()
        """The moves and cordons that an operator approved."""
        self._ordered = set[tuple[object, ...]]()
        """The moves that Trueup ordered in earlier passes: one that a broker forgot needs no second approval."""
        self.moved = 0
        """The number of moves that Trueup ordered."""

    def believed(self, broker: int) -> OwnChanges:
        """The changes that Trueup has in the journal as its own."""
        for kafka, number, ours in self._log.newest(CHANGES).values():
            if (kafka, number) == (self._name, broker):
                assert isinstance(ours, OwnChanges)
                return ours
        return NOTHING

    def approve(self, rows: Iterable[PlanRow]) -> None:
        """An operator approves these rows."""
        for row in rows:
            found = row.evidence
            if row.kind == "cordon":
                self.approved.add((found["broker"], frozenset(found["paths"])))
            else:
                self.approved.add((found["broker"], row.about["topic"], found["from"], found["to"]))

    # Requests

    def cordon(self, seen: BrokerSighting, paths: frozenset[str], policy: LogDirsSettings) -> None:
        """Trueup cordons exactly these directories."""
        number, shown = seen.broker.id, seen.shown.cordons
        others = frozenset(path for path, who in shown.items() if who == OTHER)
        if lost := others - paths:
            raise Violation(f"broker {number}: the cordon of another client on {sorted(lost)} was removed")
        online = frozenset(d.path for d in seen.broker.dirs if d.online)
        added = paths - shown.keys()
        if not added:
            return
        if policy.mode == "observe" or policy.paused or policy.strategy != "size":
            raise Violation(f"broker {number}: {sorted(added)} cordoned: {policy.mode}, {policy.paused}")
        if policy.mode == "approve" and (number, paths - (others - online)) not in self.approved:
            raise Violation(f"broker {number}: {sorted(paths)} cordoned and not approved")
        if not online - paths:
            raise Violation(f"broker {number}: the last open directory was cordoned")

    def throttle(self, seen: BrokerSighting, limit: int, policy: LogDirsSettings) -> None:
        """Trueup sets or removes the throttle."""
        number, known = seen.broker.id, seen.throttle
        if known is None or (known[0] and known[1] == OTHER):
            raise Violation(f"broker {number}: the throttle {known} of another client was changed to {limit}")
        under_way = [move for move in self.believed(number).moves if move.stage in UNDER_WAY]
        if limit and policy.mode == "observe" and not under_way:
            raise Violation(f"broker {number}: a throttle was set in mode observe")
        if not limit and policy.throttle_bytes_per_s and TRUEUP in seen.movers.values():
            raise Violation(f"broker {number}: the throttle was removed during a move")

    def order(self, seen: BrokerSighting, places: Iterable[ReplicaLocation], policy: LogDirsSettings) -> None:
        """Trueup starts and cancels moves of one broker."""
        rooms, count = dict(seen.rooms), len(seen.broker.moving)
        for place in places:
            name = (place.topic, place.partition)
            home, size = self._reported(seen.broker, name)
            if not home and place.path in self._sources(seen.broker.id, name):
                home = place.path
            what = f"{place.topic}-{place.partition} from {home} to {place.path} on broker {place.broker}"
            if place.path == home:
                self._cancel(seen, name, what)
                continue
            count += 1
            if name in seen.movers:
                raise Violation(f"{what} was ordered during a move")
            if count > policy.at_once:
                raise Violation(f"{what} is the {count}th at once")
            self._permitted((place.broker, f"{place.topic}-{place.partition}", home, place.path), policy, what)
            self._target(seen, place, policy, what)
            rooms[place.path] -= size
            directory = next(d for d in seen.broker.dirs if d.path == place.path)
            kept = max(policy.headroom_bytes, int(directory.total * policy.headroom_share))
            if rooms[place.path] < kept:
                raise Violation(f"{what} leaves {rooms[place.path]} bytes of {kept}")
            if size < policy.least_bytes:
                raise Violation(f"{what} has {size} bytes")
            if policy.throttle_bytes_per_s and not (seen.throttle or (0, ""))[0]:
                raise Violation(f"{what} was ordered without a throttle")
            self.moved += 1

    def _permitted(self, name: tuple[object, ...], policy: LogDirsSettings, what: str) -> None:
        if policy.mode == "observe" or policy.paused:
            raise Violation(f"{what} was ordered: {policy.mode}, {policy.paused}")
        if policy.mode == "approve" and name not in self.approved | self._ordered:
            raise Violation(f"{what} was not approved")

    @staticmethod
    def _target(seen: BrokerSighting, place: ReplicaLocation, policy: LogDirsSettings, what: str) -> None:
        if not all(d.online for d in seen.broker.dirs):
            raise Violation(f"{what} was ordered while a directory is offline")
        if place.path in seen.shown.cordons and seen.broker.cordons:
            raise Violation(f"{what} was ordered into a cordoned directory")
        if place.path in policy.exclude_dirs or place.topic in policy.exclude:
            raise Violation(f"{what} is excluded")
        if seen.skew <= policy.target_skew - NEAR:
            raise Violation(f"{what} is not needed: the skew is {seen.skew:.3f} of {policy.target_skew}")

    def _cancel(self, seen: BrokerSighting, name: Partition, what: str) -> None:
        mine = any((move.topic, move.partition) == name for move in self.believed(seen.broker.id).moves)
        if not mine or seen.movers.get(name) == OTHER:
            raise Violation(f"{what}: a move of another client was cancelled")

    @staticmethod
    def _reported(broker: Broker, name: Partition) -> tuple[str, int]:
        rows = broker.replicas
        for row in range(len(rows)):
            if rows.name(row) == name and not rows.future[row]:
                return broker.dirs[rows.home[row]].path, int(rows.size[row])
        return "", 0

    def _sources(self, broker: int, name: Partition) -> set[str]:
        """The directories to which own moves are cancelled of a replica that an offline directory may have."""
        return {move.source for move in self.believed(broker).moves if (move.topic, move.partition) == name}

    # The state

    def share(self) -> None:
        """Trueup may intend what another client set before the brokers show it."""
        for number, broker in self._brokers.items():
            ours = self.believed(number)
            broker.share_settings(ours.cordoned, ours.throttles)

    def advanced(self) -> None:
        """No disk is full: applications leave space, and Trueup has to."""
        for number, broker in self._brokers.items():
            ours = self.believed(number)
            for move in ours.moves:
                self._ordered.add((number, f"{move.topic}-{move.partition}", move.source, move.target))
            for directory in broker.dirs:
                if broker.usable(directory.disk) < 0:
                    raise Violation(f"the disk of {directory.path} of broker {broker.number} is full")

    # The end

    def settled(self, dirs: LogDirsReconciler) -> None:
        """What Trueup shows is the true state, and only needed changes remain."""
        for number, broker in self._brokers.items():
            known = dirs.known.get(number)
            if known is None:
                if broker.registered or self.believed(number) != NOTHING:
                    raise Violation(f"broker {number} is not shown")
                continue
            what = f"broker {number}: {known.rule} ({known.reason}), {dirs.policy.mode}"
            if not broker.up:
                if known.rule != "logdirs.unseen" or not known.reason:
                    raise Violation(f"{what}: the broker is down")
                continue
            self._shown(known, broker, what)
            self._own(dirs, broker, what)
            if not all(d.online for d in broker.dirs):
                if known.rule not in ("logdirs.offline", "logdirs.cannot-change"):
                    raise Violation(f"{what}: a directory is offline")
            elif not broker.sized:
                if known.rule != "logdirs.sizes-unknown":
                    raise Violation(f"{what}: sizes are unknown")
            else:
                self._level(known, broker, dirs.policy, what)

    @staticmethod
    def _shown(known: BrokerState, broker: DirectoryBroker, what: str) -> None:
        assert known.observed is not None, "it is up"
        true = observed(broker.report(), known.observed.at_ms)
        outgoing = {d.path: d.outgoing for d in known.observed.directories}  # which has estimated bytes
        true = true._replace(
            directories=tuple(d._replace(outgoing=outgoing[d.path]) for d in true.directories), skew=known.observed.skew
        )
        if true != known.observed:
            raise Violation(f"{what}: shown {known.observed}, true {true}")

    def _own(self, dirs: LogDirsReconciler, broker: DirectoryBroker, what: str) -> None:
        """Own cordons and throttles are gone unless something needs them; then a problem names them."""
        policy, ours = dirs.policy, self.believed(broker.number)
        own = {path for path, who in broker.settings.cordons.items() if who == TRUEUP}
        idle = policy.mode == "observe" or policy.paused or policy.strategy != "size" or not broker.supports
        if own and (idle or own - ours.cordoned):
            raise Violation(f"{what}: cordons of Trueup remain on {sorted(own)}, which knows {sorted(ours.cordoned)}")
        offline = not all(d.online for d in broker.dirs)
        stuck = offline and any(move.stage in UNDER_WAY for move in ours.moves)
        if stuck and not dirs.left():
            raise Violation(f"{what}: a move of Trueup does not end, and no problem shows it")
        if not stuck and (broker.settings.setter == TRUEUP or ours.throttles or self._unfinished(ours)):
            raise Violation(f"{what}: a throttle or a move of Trueup remains: {ours}")

    @staticmethod
    def _unfinished(ours: OwnChanges) -> list[Relocation]:
        return [move for move in ours.moves if move.stage in UNDER_WAY]

    def _level(self, known: BrokerState, broker: DirectoryBroker, policy: LogDirsSettings, what: str) -> None:
        skew, acts = broker.skew(), policy.mode != "observe" and not policy.paused
        if known.rule == "logdirs.uneven" and acts:
            raise Violation(f"{what}: the planned moves do not begin")
        if skew <= policy.target_skew + NEAR:
            return
        if known.rule not in (*EXPLAINED, "logdirs.uneven") or not known.reason:
            raise Violation(f"{what}: the skew is {skew:.3f}")
        if acts and (move := self._helpful(broker, policy, skew)):
            raise Violation(f"{what}: the skew is {skew:.3f}, and {move} would help")

    @staticmethod
    def _helpful(broker: DirectoryBroker, policy: LogDirsSettings, skew: float) -> str:
        """One move that is permitted and reduces the skew, as text."""
        cordoned = {path for path, who in broker.shown.cordons.items() if who != TRUEUP and broker.supports}
        for name, one in broker.held.items():
            if one.size < policy.least_bytes or name[0] in policy.exclude or one.home in policy.exclude_dirs:
                continue
            for d in broker.dirs:
                disk, shut = d.disk, d.path in cordoned or d.path in policy.exclude_dirs
                kept = max(policy.headroom_bytes, int(disk.total * policy.headroom_share))
                if shut or disk is broker.place[one.home].disk or broker.usable(disk) - one.size < kept:
                    continue
                was, one.home = one.home, d.path
                reached, shares, one.home = broker.skew(), broker.shares(), was
                source, target = (shares[broker.disks.index(broker.place[path].disk)] for path in (was, d.path))
                if reached < skew - NEAR and (source >= target or not _ambiguous(broker)):
                    return f"{name} from {was} to {d.path}"
        return ""


def _ambiguous(broker: DirectoryBroker) -> bool:
    """Whether two directories may be on one volume or on two: then no replica moves that is larger than the gap."""
    return len(set(broker.report().volumes.tolist())) < len(broker.dirs)
