"""The two clusters of a link, as the monitor uses them. Independent of their systems."""

import time
from collections.abc import Callable, Iterable, Mapping

from trueup.connectors.clock import now_ms
from trueup.connectors.contract import Endpoint, LogId
from trueup.connectors.replication.config_sync import Alignment, TopicPairs
from trueup.connectors.replication.group_sync import GroupSync
from trueup.connectors.replication.heartbeat import Heartbeat
from trueup.connectors.replication.ports import ClusterAdmin, Sample
from trueup.state.common.errors import Refused, TrueupError
from trueup.state.replication.anomalies import PartitionFacts as Qualities
from trueup.state.replication.settings import LinkSettings as Declared
from trueup.state.replication.settings import Start, start_of
from trueup.streams.replication.clusters import admin_of, compacted, hardest, paths_of
from trueup.streams.replication.links.link import Link
from trueup.streams.replication.links.snapshot import NOTHING, ClusterSnapshot, LinkFacts


class LinkEnds:
    """Implements `streams.replication.links.monitor.Sides` over the `ClusterAdmin` of each end."""

    def __init__(self, link: Link, admins: Callable[[Endpoint], ClusterAdmin] = admin_of) -> None:
        self._link, self._make = link, admins
        self._admins: dict[str, ClusterAdmin] = {}
        self._last = NOTHING
        self._sample: Sample | None = None

    def cluster(self, name: str) -> ClusterAdmin:
        """The administrative client of one cluster."""
        if name not in self._admins:
            self._admins[name] = self._make(self._link.endpoint(name))
        return self._admins[name]

    @property
    def source(self) -> ClusterAdmin:
        """The source cluster."""
        return self.cluster(self._link.declared.source)

    @property
    def target(self) -> ClusterAdmin:
        """The target cluster."""
        return self.cluster(self._link.declared.target)

    def look(self) -> LinkFacts:
        """Observe both clusters. A cluster that does not respond keeps its last observation, with the problem."""
        last = self._last
        source = self._side(self._link.declared.source, None, last.source)
        called = self._link.called(source.topics).values()
        target = self._side(self._link.declared.target, called, last.target)
        at_ms = last.at_ms if source.problem or target.problem else now_ms()
        self._last = LinkFacts(source, target, at_ms)
        return self._last

    def _side(self, name: str, topics: Iterable[str] | None, last: ClusterSnapshot) -> ClusterSnapshot:
        try:
            cluster = self.cluster(name)
            names = cluster.names() if topics is None else []
            # A topic that the link's user must not describe is not listed; asked for by its name, it is an error.
            asked = self._link.topics({*names, *self._link.expected()}) if topics is None else topics
            described = cluster.topics(asked, configs=False)
            every = [log for topic in described.values() for log in topic.logs]
            logs = cluster.logs(every, committed_only=topics is None)
            cluster_id = cluster.cluster_id()
        except TrueupError as error:
            return last._replace(problem=str(error))
        return ClusterSnapshot(
            {name: topic.logs for name, topic in described.items()},
            {name: topic.id for name, topic in described.items() if topic.id},
            {log_id: (log.start, log.end) for log_id, log in logs.items() if log.end >= 0},
            cluster=cluster_id,
            names=frozenset(names),
            ends_lag_s=cluster.can.ends_lag_s,
            unreadable={name: topic.error for name, topic in described.items() if topic.error},
        )

    def qualities(self, seen: TopicPairs) -> Qualities:
        """The facts that the choice of a path depends on. The source is sampled once: its load must not change the
        path."""
        declared = self._link.declared
        if self._sample is None and declared.copy == "auto":
            logs = sorted(self._last.source.logs)
            self._sample = self.source.sample(logs) if logs else None
        sample = self._sample or Sample()
        called = self._link.called(seen.source)
        pair = hardest(seen, called)
        return Qualities(
            declared.copy,
            bool(declared.transform),
            sample.magic,
            sample.per_batch,
            *pair,
            self._link.path,
            declared.failures,
            sample.record_bytes,
            declared.into,
            paths_of(self.source.endpoint.system, self.target.endpoint.system),
            compacted(seen, called),
        )

    def logs(self, logs: Iterable[LogId], at_target: bool = False) -> Mapping[LogId, tuple[int, int]]:
        """Start and end offsets of logs, including open transactions and all records acknowledged before the call. Logs
        with an error are left out."""
        cluster = self.target if at_target else self.source
        time.sleep(cluster.can.ends_lag_s)
        bounds = cluster.logs(logs, committed_only=False)
        return {log_id: (log.start, log.end) for log_id, log in bounds.items() if not log.error}

    def sizes(self, logs: Iterable[LogId]) -> Mapping[LogId, int]:
        """Sizes of source logs in bytes; unknown sizes are left out."""
        return self.source.sizes(logs)

    def alignment(self) -> Alignment:
        """The client that aligns topics, settings and rights."""
        return Alignment(self.source, self.target)

    def groups(self, back: bool = False) -> GroupSync:
        """The client for consumer groups of the source; with ``back``, for those of the target."""
        here, there = (self.target, self.source) if back else (self.source, self.target)
        return GroupSync(here.groups(), there.groups(), here.can.groups_s)

    def heartbeat(self) -> Heartbeat:
        """The client for the heartbeats of the link."""
        topic, source = self._link.declared.heartbeat_topic, self.source
        return Heartbeat(self._link.name, source.endpoint.bit, source.heartbeats(topic), self.target.heartbeats(topic))

    def starts(self, declared: Declared, logs: Iterable[LogId]) -> Mapping[LogId, int]:
        """The first offsets to copy, according to the link's ``start``. Logs with an error are left out."""
        start = start_of(declared.start)
        assert start is not None, "settings are checked"
        return self._known_starts(logs, start)

    def _known_starts(self, logs: Iterable[LogId], start: Start) -> dict[LogId, int]:
        offsets = self.source.starts(logs, start)
        return {log: offset for log, offset in offsets.items() if not isinstance(offset, TrueupError)}

    def offset(self, to: str, logs: Iterable[LogId]) -> Mapping[LogId, int]:
        """Source offsets for earliest, latest or a number. Raises `Refused` for an offset that the source does not
        have."""
        log_ids = list(logs)
        if to in ("earliest", "latest"):
            return self._known_starts(log_ids, Start(to))
        bounds = self.source.logs(log_ids)
        if not to.isdecimal() or any(not log.start <= int(to) <= log.end for log in bounds.values()):
            held = ", ".join(f"{log_id}: {log.start} to {log.end}" for log_id, log in bounds.items())
            raise Refused("earliest, latest or an available source offset", repr(to), f"available offsets: {held}")
        return dict.fromkeys(log_ids, int(to))
