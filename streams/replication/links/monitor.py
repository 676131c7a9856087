"""The control loops of a link: observe both clusters, choose the path, detect anomalies, write heartbeats, align the
target, synchronize consumer groups.

Each pass decides from fresh observations, so a failed pass only causes a delay.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Protocol

from trueup.connectors.contract import LogId
from trueup.connectors.replication.config_sync import Alignment, TopicPairs
from trueup.connectors.replication.group_sync import GroupSync
from trueup.connectors.replication.heartbeat import Heartbeat, HeartbeatState
from trueup.state.common.counts import many
from trueup.state.common.errors import TrueupError
from trueup.state.replication.anomalies import Anomaly, CopyObservation, anomalies, bare, target_replaced
from trueup.state.replication.anomalies import PartitionFacts as Qualities
from trueup.state.replication.anomalies import choose as path_of
from trueup.state.replication.settings import LinkSettings as Declared
from trueup.state.replication.topology import routes_of, second_routes
from trueup.streams.replication.links.checkpoints import Copy
from trueup.streams.replication.links.config_sync import Aligner, CreatedTopics
from trueup.streams.replication.links.group_sync import Mover
from trueup.streams.replication.links.link import Link, Note
from trueup.streams.replication.links.memory import CLUSTER, MADE, rights_from
from trueup.streams.replication.links.snapshot import NOTHING, AcknowledgedEnds, LinkFacts, ids, look, seen
from trueup.streams.replication.links.status import LinkStatus
from trueup.streams.runtime.stream import PlanRow
from trueup.streams.runtime.supervisor import Supervisor

log = logging.getLogger(__name__)
TARGET = frozenset({"replication.target-recreated", "replication.target-gone", "replication.target-lost-records"})
LOOK_S, ALIGN_S = 2.0, 5.0
COMMITTED_S, GROUPS_S, BACK_S = 0.25, 1.0, 3.0
SPACED_S = 0.2
"""The minimum interval between two passes over the groups."""
BEAT_WAIT_S = 2.0


class ObservedCopy(NamedTuple):
    """A copy before both clusters are observed."""

    copy: Copy
    sets: int
    """The value of `Copy.sets` before the observation."""
    look: CopyObservation


class Sides(Protocol):
    """Both clusters of a link. Calls raise a `TrueupError`."""

    def look(self) -> LinkFacts:
        """Observe both clusters."""

    def qualities(self, seen: TopicPairs) -> Qualities:
        """The facts that the choice of a path depends on. ``seen``: the topics of both clusters with their settings."""

    def starts(self, declared: Declared, partitions: Iterable[LogId]) -> Mapping[LogId, int]:
        """The first offsets to copy, according to the link's ``start``."""

    def offset(self, to: str, partitions: Iterable[LogId]) -> Mapping[LogId, int]:
        """Source offsets for earliest, latest or a number. Raises `Refused` for an offset that the source does not
        have."""

    def logs(self, partitions: Iterable[LogId], at_target: bool = False) -> Mapping[LogId, tuple[int, int]]:
        """Start and end offsets of partitions, including open transactions. Partitions with an error are left out."""

    def sizes(self, partitions: Iterable[LogId]) -> Mapping[LogId, int]:
        """Sizes of source partitions in bytes; unknown sizes are left out."""

    def alignment(self) -> Alignment:
        """The client that aligns topics, settings and rights."""

    def groups(self, back: bool = False) -> GroupSync:
        """The client for consumer groups of the source; with ``back``, for those of the target."""

    def heartbeat(self) -> Heartbeat:
        """The client for the heartbeats of the link."""


class LinkMonitor:
    """The control loops of one link. ``others``: all links by name."""

    def __init__(
        self,
        link: Link,
        sides: Sides,
        others: Mapping[str, "LinkMonitor"],
        memory: Mapping[str, str],
        note: Note,
        remember: Callable[[str, str], None],
    ) -> None:
        self.link, self.sides, self._others, self.note = link, sides, others, note
        name = link.name
        self.aligner = Aligner(
            link,
            sides.alignment(),
            rights_from(memory.get(name, "[]")),
            self._opposite_aligner,
            note,
            lambda text: remember(name, text),
            CreatedTopics(memory.get(f"{name}/{MADE}", "[]"), partial(remember, f"{name}/{MADE}")),
            lambda: [watch.aligner for watch in self.backwards()],
        )
        self._remember, self._cluster = partial(remember, f"{name}/{CLUSTER}"), memory.get(f"{name}/{CLUSTER}", "")
        self.mover = Mover(
            link,
            sides.groups(),
            sides.groups(back=True),
            self.opposite,
            lambda: [watch.link for watch in others.values()],
            note,
        )
        self.beat = HeartbeatState()
        self.failing: Mapping[str, str] = {}
        self.status = LinkStatus(link, lambda: self.beat, lambda: self.aligner.problems, lambda: self.failing)
        self.qualities: Qualities | None = None
        self._heartbeat: Heartbeat | None = None
        self._looking = threading.Lock()
        self._noted: set[tuple[LogId, str]] = set()
        self._looks, self._settled = dict[LogId, tuple[int, CopyObservation]](), AcknowledgedEnds()
        self.second, self.replaced = "", ""
        self._refilling, self._cancelled = set[LogId](), set[LogId]()

    def begin(self, supervisor: Supervisor) -> None:
        """Start the loops."""
        name = self.link.name
        supervisor.loop(f"sides of {name}", self.look, LOOK_S)
        supervisor.loop(f"alignment of {name}", self.align, ALIGN_S)
        supervisor.loop(f"committed offsets of {name}", self.committed, COMMITTED_S)
        supervisor.loop(f"groups of {name}", self.move, SPACED_S)
        supervisor.loop(f"groups back of {name}", self.move_back, BACK_S)
        supervisor.loop(f"heartbeat of {name}", self.heart, self.link.declared.heartbeat_s)

    def look(self) -> None:
        """Observe both clusters."""
        with self._looking:
            self._look()

    def forget(self, sources: Iterable[LogId]) -> None:
        """Forget the anomalies that were noted for these partitions, because an operator reset them."""
        forgotten = set(sources)
        self._noted = {(source, rule) for source, rule in self._noted if source not in forgotten}

    def _look(self) -> None:
        link, before = self.link, self.link.snapshot.facts
        with link.lock:
            observed = [ObservedCopy(copy, copy.sets, self._observed(copy)) for copy in link.copies.values()]
        now = self.sides.look()
        link.update(facts=now)
        same = now.source.cluster and now.source.cluster == now.target.cluster
        if self.ready and self.aligner.seen is not None:
            self.qualities = self.sides.qualities(self.aligner.seen)
        choose(self._others)
        link.update(blocked_reason=f"source and target are one cluster, {now.source.cluster}" if same else self.second)
        self._detect(observed)
        self._end_refill()
        self.status.observe(link.now_ms())
        if (before.source.topics, before.target.topics) != (now.source.topics, now.target.topics):
            link.wake()

    def _observed(self, copy: Copy) -> CopyObservation:
        """A copy before both clusters are observed, with the target end that the target must report by now."""
        lag_s = self.link.snapshot.facts.target.ends_lag_s
        return replace(look(copy, NOTHING, self.alone), copied_end=self._settled.end(copy, lag_s, time.monotonic()))

    def _end_refill(self) -> None:
        """Note the end of a refill when no partition is in it any more."""
        link, target = self.link, self.link.declared.target
        with link.lock:
            left = {source for source, copy in link.copies.items() if copy.refill is not None}
            ended = [link.copies[source] for source in self._refilling - left if source in link.copies]
            self._cancelled |= {copy.source for copy in ended if not copy.refilled}
        if self._refilling and not left:
            if self._cancelled:
                reset = many(len(self._cancelled), "partition")
                text = f"a reset of {reset} ended the refill before the lost data of {target} was restored"
                self.note(link.name, "refill", "cancelled", text)
            else:
                self.note(link.name, "refill", "done", f"the lost data of {target} was restored")
            self._cancelled = set()
        self._refilling = left

    @property
    def alone(self) -> bool:
        """Whether no other link reads or writes the target topics of this link."""
        target = self.link.declared.target
        ours = set(_topics_at(self.link, target))
        others = (watch.link for watch in self._others.values() if watch is not self)
        return not any(ours & set(_topics_at(other, target)) for other in others)

    @property
    def ready(self) -> bool:
        """Whether both clusters were observed."""
        return self.link.snapshot.facts.complete

    def align(self) -> None:
        """Align the target, after both clusters were observed."""
        if self.link.snapshot.facts.complete and not self.link.snapshot.blocked_reason:
            before = self.link.snapshot
            self._tried("alignment", lambda: self.aligner.reconcile(self.mover.names))
            self.link.update(unfit=self.failing.get("alignment", ""))
            if (before.waiting, before.compared) != (self.link.snapshot.waiting, self.link.snapshot.compared):
                self.link.wake()

    def committed(self) -> None:
        """Observe the offsets that consumer groups committed at the source."""
        if self._may_move:
            self._tried("groups at the source", self.mover.look)

    def move(self) -> None:
        """Translate committed offsets to the target as soon as records are copied or offsets are committed."""
        self.link.grown.wait(GROUPS_S)
        self.link.grown.clear()
        if self._may_move:
            self._tried("groups", self.mover.reconcile)

    def move_back(self) -> None:
        """Translate committed offsets back to the source, unless an opposite link does."""
        if self._may_move:
            self._tried("groups of the target", self.mover.sync_back)

    def _tried(self, what: str, act: Callable[[], None]) -> None:
        """Run ``act``. Its error becomes part of the link's state and does not fail the loop."""
        try:
            act()
        except TrueupError as error:
            self.failing = {**self.failing, what: str(error)}
        else:
            self.failing = {name: why for name, why in self.failing.items() if name != what}

    @property
    def _may_move(self) -> bool:
        return self.link.snapshot.facts.complete and not self.link.snapshot.blocked_reason

    def heart(self) -> None:
        """Write a heartbeat, if the link may write."""
        if self.link.declared.mode == "observe" or self.link.snapshot.blocked_reason:
            return
        self._heartbeat = self._heartbeat or self.sides.heartbeat()
        self.beat = self._heartbeat.beat(BEAT_WAIT_S)
        self.link.update(arrived_ms=self.beat.arrived_ms)

    def _opposite_aligner(self) -> Aligner | None:
        link = self.opposite()
        return self._others[link.name].aligner if link is not None else None

    def opposite(self) -> Link | None:
        """The link that copies these topics back, or None."""
        declared = self.link.declared
        here = set(self.link.called(self.link.snapshot.facts.source.topics).values())
        for link in (watch.link for watch in self._others.values()):
            back = (link.declared.source, link.declared.target) == (declared.target, declared.source)
            if back and here & set(link.called(link.snapshot.facts.source.topics)):
                return link
        return None

    def beside(self) -> list["LinkMonitor"]:
        """All other links to the target, of any topics."""
        target = self.link.declared.target
        return [watch for watch in self._others.values() if watch is not self and watch.link.declared.target == target]

    def leaving(self, cluster: str) -> list["LinkMonitor"]:
        """All links that copy from a cluster."""
        return [watch for watch in self._others.values() if watch.link.declared.source == cluster]

    def backwards(self) -> list["LinkMonitor"]:
        """All links from the target to the source, of any topics."""
        ends = self.link.declared.target, self.link.declared.source
        return [
            watch for watch in self._others.values() if (watch.link.declared.source, watch.link.declared.target) == ends
        ]

    def _detect(self, observed: Iterable[ObservedCopy]) -> None:
        """Note anomalies and stop the partitions that they affect. ``observed``: the copies before both clusters were
        observed; a copy that advanced later would appear to be past the end."""
        detected: list[tuple[ObservedCopy, list[Anomaly]]] = []
        for observation in observed:
            copy, sets, was = observation
            with self.link.lock:
                if copy.sets != sets:
                    continue  # a command set it in the meantime: what was observed concerns another position
                former_ids = copy.source_id, copy.target_id
                copy.meet(ids(copy, self.link.snapshot.facts))
            before, now = self._looks.get(copy.source, (sets, was)), seen(copy, self.link.snapshot.facts, was)
            earlier = replace(before[1] if before[0] == sets else was, source_id=former_ids[0], target_id=former_ids[1])
            detected.append((observation, anomalies(earlier, now)))
            self._looks[copy.source] = sets, now
        self._compare_target(detected)
        for observation, copy_anomalies in detected:
            for anomaly in copy_anomalies:
                self._handle(observation, anomaly)

    def _compare_target(self, detected: Sequence[tuple[ObservedCopy, list[Anomaly]]]) -> None:
        """Stop all partitions if the target cluster was replaced or lost its data."""
        now = self.link.snapshot.facts.target.cluster
        looks = [
            (self._looks[observation.copy.source][1], observation.copy, copy_anomalies)
            for observation, copy_anomalies in detected
        ]
        written = [row for row in looks if row[0].copied_end >= 0]
        parts = [(copy.target.topic, bare(look, copy_anomalies)) for look, copy, copy_anomalies in written]
        self.replaced = target_replaced(parts, (self._cluster, now))
        if self.replaced:
            for _, _, remaining in written:
                remaining[:] = [anomaly for anomaly in remaining if anomaly.rule not in TARGET]
                text = f"{self.replaced}; `trueup describe link {self.link.name}` shows the ways out"
                remaining.append(Anomaly("replication.target-replaced", -1, text, stops=True))
        elif now and not self._cluster:
            self.accept_target()

    def accept_target(self) -> None:
        """Accept the present target cluster. Raises `Retry` if the journal does not respond."""
        if now := self.link.snapshot.facts.target.cluster:
            self._remember(now)
            self._cluster, self.replaced = now, ""

    def _handle(self, observation: ObservedCopy, anomaly: Anomaly) -> None:
        copy = observation.copy
        with self.link.lock:
            if copy.sets != observation.sets:
                return
            if anomaly.stops:
                copy.exclude(f"{anomaly.rule}: {anomaly.text}")
        if (copy.source, anomaly.rule) not in self._noted:
            self._noted.add((copy.source, anomaly.rule))
            self.note(self.link.name, "found", anomaly.rule, f"{copy.source}: {anomaly.text}", anomaly.rule)

    def rows(self) -> list[PlanRow]:
        """The pending changes at the target."""
        return [*self.aligner.rows(), *self.mover.rows()]

    def approve(self, names: Iterable[str]) -> None:
        """Approve these changes."""
        changes = list(names)
        self.aligner.approve(changes)
        self.mover.approve(changes)


def choose(watches: Mapping[str, LinkMonitor]) -> None:
    """Choose the path of every link whose clusters were observed, and find records that arrive by two links."""
    ready = {name: watch for name, watch in watches.items() if watch.ready}
    declared = {name: watch.link.declared for name, watch in ready.items()}
    facts = {name: watch.qualities for name, watch in ready.items() if watch.qualities is not None}
    clusters = {cluster for link in declared.values() for cluster in (link.source, link.target)}
    names = {cluster: {t for watch in ready.values() for t in _topics_at(watch.link, cluster)} for cluster in clusters}
    routes = routes_of(declared, names)
    second = second_routes(routes)
    for name, qualities in facts.items():
        ready[name].link.update(choice=path_of(qualities))
    for name, watch in ready.items():
        watch.second = f"expected {second[name]}" if name in second else ""


def _topics_at(link: Link, cluster: str) -> Iterable[str]:
    """Topics of a cluster that a link reads or writes."""
    declared, called = link.declared, link.called(link.snapshot.facts.source.topics)
    here = called.keys() if declared.source == cluster else ()
    return [*here, *(called.values() if declared.target == cluster else ())]
