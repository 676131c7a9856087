"""Consumer groups of a cluster: their settings, members and committed offsets.

Every broker has the offsets of its own queues, and knows the members that are connected to it. A broker accepts offsets
of a group that has members, which then overwrite them; therefore members are asked for first. A broker stores nothing
beside an offset, so this process remembers which offsets links committed, until it ends.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

from trueup.connectors.contract import LogId
from trueup.connectors.replication.ports import WITHOUT_MEMBERS, Answer, GroupCommits, Refusals
from trueup.connectors.rocketmq.client import group_offsets, topics
from trueup.connectors.rocketmq.client.cluster import RocketMqClient
from trueup.connectors.rocketmq.client.codes import NoGroup
from trueup.connectors.rocketmq.replication.each_broker import ask_each_broker
from trueup.connectors.rocketmq.replication.group_settings import copied
from trueup.connectors.rocketmq.replication.identity import GROUP
from trueup.state.common.errors import Retry, Stop, TrueupError
from trueup.state.common.systems import internal

ACTIVE, EMPTY, UNKNOWN = "active", WITHOUT_MEMBERS[1], "unknown"
OWN = re.compile(
    rf"CID_RMQ_SYS_.*|{GROUP.pattern}|CID_(?:ONSAPI_(?:PERMISSION|OWNER|PULL)|ONS-HTTP-PROXY)|SELF_TEST_[CP]_GROUP"
    r"|(?:TOOLS|FILTERSRV|__MONITOR|SCHEDULE|DEFAULT)_CONSUMER|CID_DefaultHeartBeatSyncerTopic"
)
"""Groups of RocketMQ itself and of its tools (MixAll.java, PREDEFINE_GROUP_SET and CID_RMQ_SYS_PREFIX), of its proxies
(AbstractSystemMessageSyncer.java), and of Trueup."""


_UNREAD = "the broker has not reported its offset, which might decrease"


class States(Mapping[str, str]):
    """States of groups by name. A state is asked for when it is needed, since most callers only need the names;
    `unknown` if the client may not ask."""

    def __init__(self, client: RocketMqClient, brokers: Sequence[str], names: Iterable[str]) -> None:
        self._client, self._brokers = client, brokers
        self._known: dict[str, str] = dict.fromkeys(names, "")

    def __getitem__(self, group: str) -> str:
        if not self._known[group]:
            try:
                there = group_offsets.members(self._client, group, self._brokers)
                self._known[group] = ACTIVE if there else EMPTY
            except Stop:
                self._known[group] = UNKNOWN
        return self._known[group]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


class RocketMqGroups:
    """Implements `connectors.replication.ports.GroupOffsets`."""

    _paths: ClassVar[dict[tuple[str, str, LogId], tuple[int, int]]] = {}
    """The offsets that links committed, and their paths, by cluster, group and queue. All links share them."""

    def __init__(self, client: RocketMqClient) -> None:
        self._client, self.bit = client, client.endpoint.bit
        self._known: Mapping[str, Mapping[str, object]] = {}
        self._held: dict[str, Mapping[str, topics.Group]] = {}
        self._committed: dict[str, Mapping[str, Mapping[LogId, int]]] = {}
        self._unread: set[str] = set()
        """The brokers whose offsets are not known, because they never answered. A commit could decrease them."""

    def states(self) -> States:
        """All groups of applications."""
        brokers = self._read()
        return States(self._client, brokers, sorted(name for name in self._known if not OWN.fullmatch(name)))

    def _read(self) -> list[str]:
        """Read the groups of all brokers. A broker without an answer keeps its known groups. Returns the brokers."""
        brokers, groups = self._brokers(), dict[str, Mapping[str, object]]()
        self._held |= ask_each_broker(brokers, lambda broker: topics.groups(self._client, broker))[0]
        for broker in brokers:
            groups = {**self._held.get(broker, {}), **groups}
        self._known = groups
        return brokers

    def _brokers(self) -> list[str]:
        brokers = sorted(self._client.masters())
        if not brokers:
            expected = f"a broker of {self._client.endpoint.name}"
            raise Retry(expected, "none is registered at the name servers", "start it; retrying")
        return brokers

    def offsets(self, groups: Sequence[str]) -> dict[str, Answer]:
        """The committed offsets of each group in topics of applications. Those on a broker that is gone, or
        does not answer, are as they were while another one answers: a group may move because that broker failed."""
        by_group: dict[str, dict[LogId, int]] = {group: {} for group in groups}
        brokers = self._brokers() if groups else ()
        read, failed = ask_each_broker(brokers, lambda broker: group_offsets.offsets(self._client, broker))
        self._committed |= read
        self._unread = failed.keys() - self._committed.keys()
        for every in list(self._committed.values()):
            for group in groups:
                by_group[group] |= {log: at for log, at in every.get(group, {}).items() if not internal(log.topic)}
        return {group: GroupCommits(places, self._paths_of(group, places)) for group, places in by_group.items()}

    def _paths_of(self, group: str, places: Mapping[LogId, int]) -> dict[LogId, int]:
        name, paths = self._client.endpoint.name, dict[LogId, int]()
        for log, at in places.items():
            offset, path = self._paths.get((name, group, log), (at, 0))
            if path and offset == at:
                paths[log] = path
        return paths

    def ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The topics of these that exist; they have no ids."""
        names = {*topics}
        return dict.fromkeys(names & {*self._client.topics()}, "") if names else {}

    def settings(self, groups: Sequence[str]) -> dict[str, Mapping[str, object]]:
        """The settings of existing groups; as they were, if the cluster does not respond: a group may move because it
        failed."""
        try:
            self._read()
        except Retry:
            if not self._known:
                raise
        return {group: self._known[group] for group in groups if group in self._known}

    def create(self, groups: Mapping[str, Mapping[str, object]]) -> None:
        """Create groups on the brokers that do not have them, ready to be consumed. `commit` repeats what fails, and
        reports why."""
        groups = {name: copied(group) for name, group in groups.items()}
        self._known = {**self._known, **groups}
        self._create(groups)

    def _create(self, groups: Mapping[str, Mapping[str, object]]) -> dict[tuple[str, str], TrueupError]:
        """Errors by broker and group."""
        failed: dict[tuple[str, str], TrueupError] = {}
        for broker in self._brokers() if groups else ():
            try:
                have = topics.groups(self._client, broker)
            except TrueupError as error:
                failed |= {(broker, name): error for name in groups}
                continue
            for name in groups.keys() - have.keys():
                try:
                    topics.put_group(self._client, broker, {**groups[name], "groupName": name})
                except TrueupError as error:
                    failed[broker, name] = error
        return failed

    def commit(self, offsets: Mapping[str, GroupCommits]) -> dict[str, Refusals]:
        """Set committed offsets of groups without members, and read them back. A group that some brokers do not have
        is created there. While a broker does not respond, members of no group are known; it is asked once. One that
        refuses to list the members of a group is an error of that group, which may have members there."""
        brokers = self._brokers() if offsets else []
        refusals, silent = dict[str, Refusals](), False
        for group, places in offsets.items():
            if not silent:
                result = self._commit(group, places, brokers)
                silent = isinstance(result, Retry)
            refusals[group] = result
        return refusals

    def _commit(self, group: str, places: GroupCommits, brokers: Sequence[str]) -> Refusals:
        try:
            if members := group_offsets.members(self._client, group, brokers):
                return dict.fromkeys(places, f"the group has members: {', '.join(sorted(members)[:3])}")
            reasons = {log: self._set(group, log, at) for log, at in places.items() if log.place not in self._unread}
            absent = [log for log, error in reasons.items() if isinstance(error, NoGroup)]
            if absent and group in self._known:
                failed = self._create({group: self._known[group]})
                reasons |= {log: failed.get((log.place, group)) or self._set(group, log, places[log]) for log in absent}
        except TrueupError as error:
            return error
        name = self._client.endpoint.name
        for log, path in places.paths.items():
            if not reasons.get(log, _UNREAD):
                self._paths[name, group, log] = places[log], path
        return {log: _reason(reasons.get(log, _UNREAD)) for log in places}

    def _set(self, group: str, log: LogId, at: int) -> str | TrueupError:
        """Why an offset was not committed; empty if it was."""
        try:
            group_offsets.commit(self._client, group, log, at)
            offset = group_offsets.offset(self._client, group, log)
        except TrueupError as error:
            return error
        return "" if offset == at else f"expected offset {at} after it was committed; found {offset}"


def _reason(error: str | TrueupError) -> str:
    return f"{error}, with the settings that it has at the other cluster" if isinstance(error, NoGroup) else str(error)


def starts(
    client: RocketMqClient, broker: str, group: str, logs: Sequence[LogId]
) -> dict[LogId, int | TrueupError | None]:
    """The committed offset of a group in each of these queues of a broker; None if there is none."""
    answers = client.ask_each(broker, [group_offsets.offset_request(group, log) for log in logs])
    return {
        log: answer if isinstance(answer, TrueupError) else group_offsets.offset_of(answer)
        for log, answer in zip(logs, answers, strict=True)
    }
