"""Both clusters of a link beside the copying: topics, ends and starts, from what connectors discover."""

import time
from collections.abc import Iterable, Mapping

from trueup.connectors.contract import LogId
from trueup.connectors.kafka.client.group_offsets import Committed
from trueup.connectors.kafka.client.metadata import Discovery, Topic, partitions_of
from trueup.connectors.kafka.client.options import only_records
from trueup.connectors.kafka.logdirs.client import LogDirs
from trueup.connectors.kafka.replication.batch_stats import Sample, sample
from trueup.connectors.kafka.replication.config_sync import Alignment, Seen
from trueup.connectors.kafka.replication.group_sync import Groups
from trueup.connectors.kafka.replication.heartbeat import Heartbeat
from trueup.state.common.errors import Refused, TrueupError
from trueup.state.replication.anomalies import Facts as Qualities
from trueup.state.replication.anomalies import choose
from trueup.state.replication.config_sync import Setting
from trueup.state.replication.settings import Link as Declared
from trueup.state.replication.settings import Start, start_of
from trueup.streams.replication.link import Link
from trueup.streams.replication.snapshot import NOTHING, Facts, Side


class KafkaSides:
    """Implements `streams.replication.monitor.Sides`."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._clusters: dict[str, Discovery] = {}
        self._last = NOTHING
        self._sample: Sample | None = None

    def cluster(self, name: str) -> Discovery:
        """One side. Connects at the first question."""
        if name not in self._clusters:
            self._clusters[name] = Discovery(self._link.side(name))
        return self._clusters[name]

    def look(self) -> Facts:
        """What both say now; of one that does not answer, what it said last, and why it does not."""
        declared, last = self._link.declared, self._last
        source = self._side(declared.source, None, last.source)
        called = self._link.called(source.partitions).values()
        target = self._side(declared.target, called, last.target)
        at_ms = last.at_ms if source.problem or target.problem else time.time_ns() // 1_000_000
        self._last = Facts(source, target, at_ms)
        return self._last

    def _side(self, name: str, topics: Iterable[str] | None, last: Side) -> Side:
        try:
            cluster = self.cluster(name)
            names = cluster.names() if topics is None else []
            chosen = self._link.topics(names) if topics is None else topics
            found = cluster.topics(chosen, configs=False)
            logs = cluster.logs(partitions_of(found.values()), committed_only=topics is None)
            cluster_id = cluster.cluster_id()
        except TrueupError as error:
            return last._replace(problem=str(error))
        return Side(
            _counts(found),
            {name: topic.id for name, topic in found.items() if topic.id},
            {partition: (log.start, log.end) for partition, log in logs.items() if log.end >= 0},
            cluster=cluster_id,
            names=frozenset(names),
        )

    def qualities(self, seen: Seen) -> Qualities:
        """What the choice of a path depends on. The source is looked at once: a path is not changed for a busy hour."""
        declared = self._link.declared
        if self._sample is None and declared.copy == "auto":
            partitions = sorted(self._last.source.logs)
            self._sample = sample(self._link.side(declared.source), partitions) if partitions else None
        found = self._sample or Sample()
        pair = _worst(seen, self._link.called(seen.source))
        return Qualities(
            declared.copy, bool(declared.transform), found.magic, found.per_batch, *pair, self._unfit(),
            self._link.path, declared.failures, found.record_bytes, declared.into,
        )  # fmt: skip

    def _unfit(self) -> str:
        """What of the clusters' security the batch path cannot do; empty: nothing."""
        declared = self._link.declared
        return "; ".join(
            f"kafka.{name}.options.{problem}"
            for name in (declared.source, declared.target)
            for problem in only_records(self._link.side(name).options)
        )

    def logs(self, partitions: Iterable[LogId], at_target: bool = False) -> Mapping[LogId, tuple[int, int]]:
        """Start and end of partitions, open transactions included; of those that answer."""
        declared = self._link.declared
        found = self.cluster(declared.target if at_target else declared.source).logs(partitions, committed_only=False)
        return {partition: (log.start, log.end) for partition, log in found.items() if not log.error}

    def sizes(self, partitions: Iterable[LogId]) -> Mapping[LogId, int]:
        """Bytes of partitions of the source; of those that are known."""
        wanted = set(partitions)
        try:
            with LogDirs(self._link.side(self._link.declared.source)) as directories:
                rows = [seen.broker.replicas for seen in directories.look() if seen.broker is not None]
        except TrueupError:
            return {}
        found: dict[LogId, int] = {}
        for replicas in rows:
            for row in range(len(replicas)):
                partition = LogId(*replicas.name(row))
                if partition in wanted and not replicas.future[row]:
                    found[partition] = max(found.get(partition, 0), int(replicas.size[row]))
        return found

    def alignment(self) -> Alignment:
        """For topics, settings and rights."""
        return Alignment(*self._both())

    def groups(self, back: bool = False) -> Groups:
        """For consumer groups of the source, or ``back`` those of the target."""
        declared = self._link.declared
        here, there = (Committed(self._link.side(name)) for name in (declared.source, declared.target))
        return Groups(there, here) if back else Groups(here, there)

    def heartbeat(self) -> Heartbeat:
        """The link's heartbeats."""
        declared = self._link.declared
        source, target = self._link.side(declared.source), self._link.side(declared.target)
        return Heartbeat(self._link.name, source, target, declared.heartbeat_topic)

    def _both(self) -> tuple[Discovery, Discovery]:
        declared = self._link.declared
        return self.cluster(declared.source), self.cluster(declared.target)

    def starts(self, declared: Declared, partitions: Iterable[LogId]) -> Mapping[LogId, int]:
        """The first offsets to copy, as the link's ``start`` says; of those that can be told."""
        start = start_of(declared.start)
        assert start is not None, "settings are checked"
        return self._told(partitions, start)

    def _told(self, partitions: Iterable[LogId], start: Start) -> dict[LogId, int]:
        found = self.cluster(self._link.declared.source).starts(partitions, start)
        return {partition: offset for partition, offset in found.items() if not isinstance(offset, TrueupError)}

    def offset(self, to: str, partitions: Iterable[LogId]) -> Mapping[LogId, int]:
        """Source offsets for earliest, latest or a number within what the source holds."""
        chosen = list(partitions)
        if to in ("earliest", "latest"):
            return self._told(chosen, Start(to))
        logs = self.cluster(self._link.declared.source).logs(chosen)
        if not to.isdecimal() or any(not log.start <= int(to) <= log.end for log in logs.values()):
            held = ", ".join(f"{partition}: {log.start} to {log.end}" for partition, log in logs.items())
            raise Refused("earliest, latest or an offset that the source holds", repr(to), f"it holds {held}")
        return dict.fromkeys(chosen, int(to))


def _worst(seen: Seen, called: Mapping[str, str]) -> tuple[str, str, str, int, int]:
    """Compression at both ends, timestamps at the target, largest batches at both ends: of the topic that is hardest
    to copy in whole batches, the first where one is as another."""
    none, found = ("", "", "", -1, -1), list[tuple[str, str, str, int, int]]()
    for name, target in called.items():
        if name in seen.source and target in seen.target:
            here, there = seen.source[name].configs, seen.target[target].configs
            found.append((
                _value(here, "compression.type"), _value(there, "compression.type"),
                _value(there, "message.timestamp.type"), int(_value(here, "max.message.bytes") or -1),
                int(_value(there, "max.message.bytes") or -1),
            ))  # fmt: skip
    hard = (one for one in found if choose(Qualities("auto", False, 2, -1.0, *one)).path == "records")
    return next(hard, found[0] if found else none)


def _value(configs: Mapping[str, Setting], name: str) -> str:
    return configs[name].value if name in configs else ""


def _counts(topics: Mapping[str, Topic]) -> dict[str, int]:
    """Partitions by topic; none for a topic that cannot be read."""
    return {name: 0 if topic.error else len(topic.leaders) for name, topic in topics.items()}
