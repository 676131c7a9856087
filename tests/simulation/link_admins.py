"""The administration of the simulated log clusters: topics, groups and heartbeats, with faults."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from tests.simulation.link_ports import LOST, SLOW_S, WorkerPorts
from tests.simulation.logs import LARGE, SMALL, LogCluster
from trueup.connectors.contract import Endpoint, LogId
from trueup.connectors.replication.ports import WITHOUT_MEMBERS, Answer, GroupCommits, Log, Refusals, Sample, TopicState
from trueup.state.common.errors import Retry, Stop, TrueupError, Unknown
from trueup.state.replication.config_sync import Action, ChangeKind, Right, Setting
from trueup.state.replication.settings import Start

LIMIT = "max.message.bytes"


class LogAdmin:
    """Implements `connectors.replication.ports.ClusterAdmin`."""

    def __init__(self, ports: WorkerPorts, endpoint: Endpoint, link: str) -> None:
        self.endpoint, self._ports, self._link = endpoint, ports, link
        self._cluster = ports.clusters.by_name[endpoint.name]
        self.can = self._cluster.can

    def close(self) -> None:
        """Nothing to close."""

    def _called(self) -> None:
        self._ports.seam()
        if self._cluster.down:
            raise Retry(f"{self._cluster.name} to respond", "connection refused", "it is asked again")
        if self._ports.faults.happens(0.02):
            raise LOST

    def cluster_id(self) -> str:
        self._called()
        return self._cluster.name

    def names(self) -> list[str]:
        self._called()
        return sorted(self._cluster.topics.keys() - self._cluster.hidden)

    def topics(self, names: Iterable[str], configs: bool = True) -> dict[str, TopicState]:
        del configs
        self._called()
        wanted = set(names)
        found = {name: TopicState(name, error="not authorized") for name in sorted(wanted & self._cluster.hidden)}
        for name in sorted(wanted & self._cluster.topics.keys() - found.keys()):
            topic = self._cluster.topics[name]
            settings = {LIMIT: Setting(str(topic.limit), True)} if self.can.configs else {}
            found[name] = TopicState(name, tuple(topic.logs), topic.id, settings)
        return found

    def logs(self, logs: Iterable[LogId], committed_only: bool = True) -> dict[LogId, Log]:
        del committed_only
        self._called()
        return {log: self._log(log) for log in logs}

    def _log(self, log: LogId) -> Log:
        held = self._cluster.log(log)
        if held is None or log.topic in self._cluster.hidden:
            return Log(error="no such log, or no rights to it")
        return Log(held.start, held.shown(int(self._ports.clusters.time_ms) - self._cluster.lag_ms))

    def starts(self, logs: Iterable[LogId], start: Start) -> dict[LogId, int | TrueupError]:
        return {
            log: Stop(str(log), found.error, "look") if found.error else found[start.kind == "latest"]
            for log, found in self.logs(logs).items()
        }

    def sizes(self, logs: Iterable[LogId]) -> dict[LogId, int]:
        del logs
        return {}

    def known_settings(self) -> frozenset[str]:
        return frozenset({LIMIT}) if self.can.configs else frozenset()

    def rights(self) -> list[Right]:
        raise Stop(f"{self._cluster.name} to tell its rights", "that it has none", "leave acls out of align")

    def group_configs(self, groups: Collection[str]) -> dict[str, list[dict[str, str]]]:
        del groups
        return {}

    def apply(self, kind: ChangeKind, actions: Sequence[Action]) -> list[TrueupError | None]:
        self._called()
        results = list[TrueupError | None]()
        for action in actions:
            self._apply(kind, action)
            self._ports.seam()
            results.append(Unknown("a response", "none", "look") if self._ports.faults.answer_lost() else None)
        return results

    def _apply(self, kind: ChangeKind, action: Action) -> None:
        topics, limit = (
            self._cluster.topics,
            int(action.configs.get(LIMIT) or (SMALL if self._ports.faults.on else LARGE)),
        )
        if kind is ChangeKind.CREATE and action.topic not in topics:
            self._cluster.create(action.topic, action.partitions, limit)
        elif kind is ChangeKind.GROW and action.topic in topics:
            self._cluster.grow(action.topic, action.partitions)
        elif kind in (ChangeKind.SET, ChangeKind.SECURE) and action.topic in topics:
            topics[action.topic].limit = limit

    def groups(self) -> "LogGroups":
        return LogGroups(self._ports, self._cluster, self._link)

    def heartbeats(self, topic: str) -> "LogHeartbeats":
        del topic
        return LogHeartbeats(self._ports, self._cluster)

    def sample(self, logs: Sequence[LogId]) -> Sample:
        del logs
        return Sample()

    def notes(self, heartbeat_topic: str) -> list[str]:
        return []

    def problems(self) -> list[str]:
        return []


class LogGroups:
    """Implements `connectors.replication.ports.GroupOffsets`."""

    def __init__(self, ports: WorkerPorts, cluster: LogCluster, link: str) -> None:
        self._ports, self._cluster, self._link, self.bit = ports, cluster, link, cluster.bit

    def _called(self) -> None:
        self._ports.seam()
        if self._cluster.down:
            raise Retry(f"groups of {self._cluster.name}", "connection refused", "they are asked again")
        if self._ports.faults.happens(0.02):
            raise LOST

    def _runs(self, group: str) -> bool:
        return any(
            one.name == group and one.members and one.home == self._cluster.name for one in self._ports.clusters.groups
        )

    def states(self) -> dict[str, str]:
        self._called()
        return {group: "stable" if self._runs(group) else WITHOUT_MEMBERS[1] for group in sorted(self._cluster.commits)}

    def offsets(self, groups: Sequence[str]) -> dict[str, Answer]:
        self._called()
        found = dict[str, Answer]()
        for group in groups:
            commits = self._cluster.commits.get(group, {})
            offsets, paths = ({log: commit[at] for log, commit in commits.items()} for at in (0, 1))
            found[group] = GroupCommits(offsets, paths)
        return found

    def ids(self, topics: Iterable[str]) -> dict[str, str]:
        self._called()
        held = self._cluster.topics
        return {name: held[name].id for name in sorted({*topics} & held.keys() - self._cluster.hidden)}

    def settings(self, groups: Sequence[str]) -> dict[str, Mapping[str, object]]:
        return {}

    def create(self, groups: Mapping[str, Mapping[str, object]]) -> None:
        """A commit creates a group."""

    def commit(self, offsets: Mapping[str, GroupCommits]) -> dict[str, Refusals]:
        self._called()
        results = dict[str, Refusals]()
        for group, places in sorted(offsets.items()):
            if self._runs(group):
                results[group] = dict.fromkeys(places, "the group has members")
                continue
            self._ports.checkers.group_set(self._link, self._cluster, group, places)
            kept = self._cluster.commits.setdefault(group, {})
            kept.update({log: (at, places.paths.get(log, 0)) for log, at in places.items()})
            lost = self._ports.faults.answer_lost()
            results[group] = Unknown("a response", "none", "look") if lost else dict.fromkeys(places, "")
        return results


class LogHeartbeats:
    """Implements `connectors.replication.ports.HeartbeatLog`."""

    def __init__(self, ports: WorkerPorts, cluster: LogCluster) -> None:
        self._ports, self._cluster, self._at = ports, cluster, len(cluster.beats)
        self.error, self.written_ms = "", 0

    def prepare(self) -> None:
        self._ports.seam()

    def write(self, key: bytes, sent_ms: int) -> None:
        if self._usable():
            self._cluster.beats.append((key, sent_ms))
            self.written_ms = max(self.written_ms, sent_ms)

    def read(self, key: bytes) -> list[int]:
        if not self._usable():
            self._ports.clusters.elapse(SLOW_S)
            return []
        rows, self._at = self._cluster.beats[self._at :], len(self._cluster.beats)
        return [sent_ms for known, sent_ms in rows if known == key]

    def _usable(self) -> bool:
        self.error = f"{self._cluster.name} does not respond" if self._cluster.down else ""
        return not self._cluster.down

    def close(self) -> None:
        """Nothing to close."""
