"""The administration of a RocketMQ cluster by links.

Every broker has its own topics, groups, offsets and rights; what holds for the cluster is put together here. Name
servers forget a broker, and with it its topics, within a second of its death. Therefore brokers and the topics that
were asked for are remembered as long as this object lives: queues of a broker that is gone are not taken for deleted.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from trueup.connectors.closing import Closing
from trueup.connectors.contract import Endpoint, LogId
from trueup.connectors.replication.ports import Capabilities, Log, Sample, TopicState
from trueup.connectors.rocketmq.client import messages, topics
from trueup.connectors.rocketmq.client.cluster import RocketMqClient
from trueup.connectors.rocketmq.client.codes import Unsupported
from trueup.connectors.rocketmq.client.connection import RocketMqRequest, RocketMqResponse
from trueup.connectors.rocketmq.client.dispatch import wait_dispatched
from trueup.connectors.rocketmq.client.options import problems
from trueup.connectors.rocketmq.client.rights import NoRights
from trueup.connectors.rocketmq.client.topics import Group, RocketMqTopic
from trueup.connectors.rocketmq.client.version import ATTRIBUTES, Version, shown, version
from trueup.connectors.rocketmq.replication import rights
from trueup.connectors.rocketmq.replication.each_broker import Failure, answers_of, ask_each_broker, worst
from trueup.connectors.rocketmq.replication.group_settings import GroupSetter, configs_of
from trueup.connectors.rocketmq.replication.groups import RocketMqGroups, starts
from trueup.connectors.rocketmq.replication.heartbeat import RIP_45, RocketMqHeartbeats, queue_of
from trueup.connectors.rocketmq.replication.identity import cluster_id
from trueup.connectors.rocketmq.replication.topics import KNOWN, WITHOUT_ATTRIBUTES, create, grow, set_configs, state_of
from trueup.state.common.counts import many
from trueup.state.common.errors import BadSettings, Retry, Stop, TrueupError
from trueup.state.replication.config_sync import Action, ChangeKind, Right
from trueup.state.replication.settings import Start

_EVERYWHERE = ("BenchmarkTest", "CHECKPOINT_TOPIC")
"""Topics of every broker, whose names are valid elsewhere (TopicValidator.java)."""
_REPLIES = "_REPLY_TOPIC"
Found = dict[LogId, int | TrueupError]
Change = Callable[[RocketMqClient, Sequence[str], Action], None]
"""Executes an action on these brokers."""


class RocketMqAdmin(Closing):
    """Implements `connectors.replication.ports.ClusterAdmin`. Connects at the first request."""

    can = Capabilities(topic_ids=False, groups_s=2.0)

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._made: RocketMqClient | None = None
        self._lock = threading.Lock()
        self._brokers: frozenset[str] = frozenset()
        self._homes: dict[str, dict[str, RocketMqTopic]] = {}
        self._held: dict[str, Mapping[str, Group]] = {}
        self._do: Mapping[ChangeKind, Change] = {**_DO, ChangeKind.SET_GROUP: GroupSetter()}

    @property
    def _client(self) -> RocketMqClient:
        with self._lock:
            self._made = self._made or RocketMqClient(self.endpoint)
            return self._made

    def close(self) -> None:
        """Close all connections."""
        if self._made is not None:
            self._made.close()
            self._made = None

    def cluster_id(self) -> str:
        """The id that Trueup gave the cluster."""
        return cluster_id(self._client)

    def names(self) -> list[str]:
        """Names of all topics, also of those whose brokers are gone; without those that RocketMQ names itself."""
        own = self._client.own_names()
        hidden = {*own, *_EVERYWHERE, *(name + _REPLIES for name in own)}
        gone = self._brokers - self._client.masters().keys()
        with self._lock:
            missed = {name for name, homes in self._homes.items() if homes.keys() & gone}
        return sorted((set(self._client.topics()) | missed) - hidden)

    def topics(self, names: Iterable[str], configs: bool = True) -> dict[str, TopicState]:
        """Those of ``names`` that exist. One request per broker. Queues of a broker that does not answer are as they
        were; `logs` has an error for them. A topic that name servers list and none of the others has is an error."""
        del configs  # they come with the topics
        topic_names, brokers = set(names), sorted(self._brokers | self._client.masters().keys())
        if not brokers:
            raise _no_broker(self.endpoint)
        every, failed = ask_each_broker(brokers, lambda broker: topics.topics(self._client, broker))
        if unknown := [e for broker, e in failed.items() if broker not in self._brokers and isinstance(e, Stop)]:
            raise unknown[0]  # nobody knows which queues it has
        for broker, held in every.items():
            self._remember(broker, topic_names, held)
        with self._lock:
            homes = {name: dict(self._homes.get(name, {})) for name in sorted(topic_names)}
        states = {name: state_of(name, parts) for name, parts in homes.items() if parts}
        return states | self._unlisted(topic_names - states.keys(), failed)

    def _unlisted(self, missing: Collection[str], failed: Mapping[str, Failure]) -> dict[str, TopicState]:
        """Those of the missing topics that must be on brokers which did not answer: they were not deleted."""
        listed = set(missing).intersection(self._client.topics()) if missing and failed else set[str]()
        why = "; ".join(f"broker {broker} does not list its topics: {error}" for broker, error in failed.items())
        return {name: TopicState(name, error=why) for name in sorted(listed)}

    def _remember(self, broker: str, names: set[str], held: Mapping[str, RocketMqTopic]) -> None:
        with self._lock:
            self._brokers = self._brokers | {broker}
            for name in names:
                homes = self._homes.setdefault(name, {})
                homes.pop(broker, None)
                if name in held:
                    homes[broker] = held[name]

    def logs(self, logs: Iterable[LogId], committed_only: bool = True) -> dict[LogId, Log]:
        """Start and end of queues; ends include everything that was acknowledged before the call. Messages of open
        transactions are in none of them."""
        del committed_only
        asked = list(logs)
        first, last = self._offsets(asked, messages.first_offset, messages.end_offset)
        return {log: _log(first[log], last[log]) for log in asked}

    def starts(self, logs: Iterable[LogId], start: Start) -> dict[LogId, int | TrueupError]:
        """The first offset to copy of each queue; a ``time`` is that of storing."""
        asked = list(logs)
        if start.kind == "latest":
            return self._offsets(asked, messages.end_offset)[0]
        if start.kind == "time":
            return self._offsets(asked, lambda log: messages.offset_at(log, start.at_ms))[0]
        first = self._offsets(asked, messages.first_offset)[0]
        return {**first, **self._committed(asked, start.group)} if start.kind == "group" else first

    def _committed(self, logs: Sequence[LogId], group: str) -> Found:
        offsets: Found = {}
        for broker, some in _by_broker(logs).items():
            answers = starts(self._client, broker, group, some)
            offsets |= {log: answer for log, answer in answers.items() if answer is not None}
        return offsets

    def _offsets(self, logs: Sequence[LogId], *asks: Callable[[LogId], RocketMqRequest]) -> list[Found]:
        """For each question, one offset of each queue. A broker that does not answer is an error of its queues, unless
        it is the only one, or no broker answers and one refuses."""
        offsets, by_broker, failed = [Found() for _ in asks], _by_broker(logs), list[Failure]()
        for broker, some in by_broker.items():
            try:
                wait_dispatched(self._client, broker)
                answers = self._on(broker, some, asks)
            except (Retry, Stop) as error:
                failed.append(error)
                answers = [Found(dict.fromkeys(some, error)) for _ in asks]
            for every, these in zip(offsets, answers, strict=True):
                every.update(these)
        if failed and len(failed) == len(by_broker) and (len(failed) == 1 or isinstance(worst(failed), Stop)):
            raise worst(failed)
        return offsets

    def _on(
        self, broker: str, logs: Sequence[LogId], asks: Sequence[Callable[[LogId], RocketMqRequest]]
    ) -> list[Found]:
        """Brokers respond with offset 0 for queues that they do not have; so what exists is read afterwards."""
        asked, names = [ask(log) for ask in asks for log in logs], sorted({log.topic for log in logs})
        answers = iter(self._client.ask_each(broker, asked))
        there = topics.each_topic(self._client, broker, names)
        return [{log: _offset(log, next(answers), there[log.topic]) for log in logs} for _ in asks]

    def sizes(self, logs: Iterable[LogId]) -> dict[LogId, int]:
        """Empty: messages of all queues of a broker are in one file."""
        del logs
        return {}

    def known_settings(self) -> frozenset[str]:
        """Topic settings of RocketMQ 5.5; without attributes if a broker is older than 5.0."""
        return WITHOUT_ATTRIBUTES if () < self._oldest() < ATTRIBUTES else KNOWN

    def _oldest(self) -> Version:
        """The lowest version of the brokers that tell theirs. Raises `Retry` if none responds."""
        try:
            by_broker, _ = ask_each_broker(self._client.masters(), lambda broker: version(self._client, broker))
        except Stop:
            return ()  # the user may not ask
        return min(filter(None, by_broker.values()), default=())

    def group_configs(self, groups: Collection[str]) -> dict[str, list[Mapping[str, str]]]:
        """One request per broker. Groups of a broker that does not answer are as they were. Raises `Retry` for one that
        never answered and may soon; one that refuses is left out."""
        held, failed = ask_each_broker(self._client.masters(), lambda broker: topics.groups(self._client, broker))
        self._held |= held
        for broker, error in failed.items():
            if isinstance(error, Retry) and broker not in self._held:
                raise error
        every = [self._held[broker] for broker in sorted(self._held)]
        return {name: [configs_of(by_name[name]) for by_name in every if name in by_name] for name in groups}

    def rights(self) -> list[Right]:
        """ACLs on topics and groups. Raises `NoRights` if there is no ACL."""
        return rights.present(self._client, self._all_brokers()[-1])

    def apply(self, kind: ChangeKind, actions: Sequence[Action]) -> list[TrueupError | None]:
        """Execute actions of one kind, one after another."""
        return [self._applied(kind, action) for action in actions]

    def _applied(self, kind: ChangeKind, action: Action) -> TrueupError | None:
        try:
            brokers = self._all_brokers(known=kind is not ChangeKind.CREATE)
            if action.right is not None:
                rights.change(self._client, brokers, action.right, kind in (ChangeKind.ALLOW, ChangeKind.DENY))
            else:
                self._do[kind](self._client, brokers, action)
        except TrueupError as error:
            return error
        return None

    def _all_brokers(self, known: bool = True) -> list[str]:
        """All brokers in order. Raises `Retry` if there is none; with ``known``, also if one that was there is gone: it
        would return without the change."""
        masters = self._client.masters()
        if known and (gone := sorted(self._brokers - masters.keys())):
            expected = f"broker {', '.join(gone)} of {self.endpoint.name}, for a change on all brokers"
            todo = "start it; if it was removed for good, restart Trueup"
            raise Retry(expected, "it is not registered at the name servers", todo)
        if not masters:
            raise _no_broker(self.endpoint)
        return sorted(masters)

    def groups(self) -> RocketMqGroups:
        """Its consumer groups."""
        return RocketMqGroups(self._client)

    def heartbeats(self, topic: str) -> RocketMqHeartbeats:
        """Its heartbeats' topic, over separate connections."""
        if wrong := self.problems():
            raise BadSettings(wrong)
        return RocketMqHeartbeats(self.endpoint, topic)

    def sample(self, logs: Sequence[LogId]) -> Sample:
        """Nothing is known: messages are stored one by one."""
        del logs
        return Sample()

    def notes(self, heartbeat_topic: str) -> list[str]:
        """Whether ACL is in use, whether brokers differ in it, what they are too old for, and the topic of
        heartbeats."""
        log = queue_of(self._client, heartbeat_topic)
        beats = f"heartbeats in {log.topic} on {log.place}" if log else f"no heartbeats yet, neither in {RIP_45}"
        return [self._acl_note(), beats if log else f"{beats} nor in {heartbeat_topic}"]

    def _acl_note(self) -> str:
        try:
            every = {broker: rights.present(self._client, broker) for broker in self._all_brokers()}
        except NoRights:
            return "no ACL"
        except Unsupported:
            return self._acl_1() + _lacks(self._oldest())
        except Stop as error:
            return f"ACL 2.0 ({error.todo} to compare rights)"
        differ = sorted(broker for broker, some in every.items() if some != every[max(every)])
        return f"ACL 2.0, other rights on {', '.join(differ)} than on {max(every)}" if differ else "ACL 2.0"

    def _acl_1(self) -> str:
        """Which brokers check signatures and rights by the ACL that was before 2.0."""
        settings, hidden = answers_of(self._all_brokers(), lambda broker: topics.settings(self._client, broker))
        checking = [broker for broker, values in settings.items() if values.get("aclEnable") == "true"]
        said = f"ACL 1.0 is unknown on {', '.join(hidden)}; " if hidden else ""
        return said + (f"ACL 1.0 (plain_acl.yml) on {', '.join(checking)}; " if checking else "")

    def problems(self) -> list[str]:
        """Problems of the options."""
        return problems(self.endpoint)


def _lacks(oldest: Version) -> str:
    """What a version before 5.3 cannot do."""
    lacking = ["no ACL 2.0 before 5.3: rights are not copied"]
    if () < oldest < ATTRIBUTES:
        lacking.append("no attributes of topics and groups, no order, time-out or retry policy of groups before 5.0")
    return f"{shown(oldest)} has {', '.join(lacking)}"


def _by_broker(logs: Iterable[LogId]) -> dict[str, list[LogId]]:
    by_broker: dict[str, list[LogId]] = {}
    for log in logs:
        by_broker.setdefault(log.place, []).append(log)
    return by_broker


def _offset(
    log: LogId, answer: RocketMqResponse | TrueupError, there: RocketMqTopic | TrueupError | None
) -> int | TrueupError:
    if isinstance(answer, TrueupError):
        return answer
    if isinstance(there, TrueupError):
        return there
    if there is None or not 0 <= log.number < max(there.read, there.write):
        queues = "no such topic there" if there is None else f"{many(there.read, 'queue')} there"
        return Stop(f"queue {log.number} of topic {log.topic} on broker {log.place}", queues, "create it again")
    return messages.offset_of(answer)


def _log(start: int | TrueupError, end: int | TrueupError) -> Log:
    for bound in (start, end):
        if isinstance(bound, TrueupError):
            return Log(error=str(bound))
    return Log(int(start), int(end))  # type: ignore[arg-type]


def _no_broker(endpoint: Endpoint) -> Retry:
    return Retry(f"a broker of {endpoint.name}", "none is registered at the name servers", "start it; retrying")


_DO: Mapping[ChangeKind, Change] = {
    ChangeKind.CREATE: create,
    ChangeKind.SECURE: set_configs,
    ChangeKind.GROW: grow,
    ChangeKind.SET: set_configs,
}
