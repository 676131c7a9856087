"""Observes what the read priority of brokers depends on: policies of namespaces and topics, and copies of ledgers.

Topics and ledgers are read from ZooKeeper, policies from the admin API. Only topics with an offloaded ledger, with a
declared priority of their own, or with a change in progress are observed: for others the priority has no effect.
Brokers offload no topics of their own.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from trueup.connectors.pulsar.admin.client import BrokerAnswers, PulsarAdmin, scope_of
from trueup.connectors.pulsar.admin.http import NotEnabled
from trueup.connectors.pulsar.layout import PulsarPaths
from trueup.connectors.pulsar.namespaces import ledgers, namespaces
from trueup.connectors.pulsar.partitioned import choice, of_namespaces, topics, undecided
from trueup.connectors.pulsar.topics import PulsarTopic, of_service
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.state.common.counts import many
from trueup.state.common.errors import Stop, TrueupError
from trueup.state.common.patterns import regex_of
from trueup.state.read_priority.policies import Level, PolicyView
from trueup.state.read_priority.settings import Declared, ReadPrioritySettings, declared_of
from trueup.state.read_priority.view import NamespaceView, PriorityObservation, TopicView
from trueup.streams.read_priority.copies import CopyChecker, LedgerToCheck
from trueup.streams.runtime.signs import first


class ObservedTopic(NamedTuple):
    """A topic or partition with its closed ledgers."""

    topic: PulsarTopic
    wanted: tuple[LedgerToCheck, ...]


class Observer:
    """Used by one thread. ``session``: the function that returns a session of ZooKeeper. It raises `Retry`."""

    def __init__(
        self,
        admin: PulsarAdmin,
        session: Callable[[], ZooKeeperClient],
        paths: PulsarPaths,
        checker: CopyChecker,
        clock: Callable[[], int],
    ) -> None:
        self._admin, self._session, self._paths, self._checker, self._clock = admin, session, paths, checker, clock

    def observe(
        self, settings: ReadPrioritySettings, kept: Iterable[str], hot: Callable[[str], bool]
    ) -> PriorityObservation:
        """One pass. ``kept``: the names of targets that are observed in any case; ``hot``: whether the copies of the
        topic with this name are checked first. Raises `Retry` if ZooKeeper does not respond."""
        began_ms, remembered = self._clock(), frozenset(kept)
        every_name = (name for name in namespaces(self._session(), self._paths) if not of_service(name))
        names = [name for name in every_name if _concerned(settings, name, remembered)]
        parts, bad, incomplete = self._parts(settings, names, remembered)
        every = [ledger for some in parts.values() for part in some for ledger in part.wanted]
        self._checker.check(every, settings.checks, settings.verify_bytes, hot)
        answers, problem = self._brokers()
        seen = {} if problem else {name: self._namespace(settings, name) for name in names}
        # Of a topic whose other parts are not readable or not decided, nothing is known.
        views = [self._topic(settings, name, some, problem) for name, some in parts.items() if name not in bad]
        views += [TopicView(*_split(name), _declared(settings, name), None, problem=why) for name, why in bad.items()]
        return PriorityObservation(began_ms, self._clock(), answers.brokers, seen, views, problem, incomplete)

    def _brokers(self) -> tuple[BrokerAnswers, str]:
        try:
            return self._admin.brokers(), ""
        except TrueupError as error:
            return BrokerAnswers(()), str(error)

    def _parts(
        self, settings: ReadPrioritySettings, names: Sequence[str], kept: frozenset[str]
    ) -> tuple[dict[str, list[ObservedTopic]], dict[str, str], str]:
        """Parts of the topics that are observed, by name; topics that are not readable, with the reason; why topics
        are missing."""
        client, bad = self._session(), dict[str, str]()
        parts: dict[str, list[ObservedTopic]] = {}
        of, every = of_namespaces(client, self._paths, names), list[PulsarTopic]()

        def unreadable(topic: PulsarTopic, error: Stop) -> None:
            bad[name_of(of.named(topic))] = str(error)

        for there in topics(client, self._paths, names):
            clients_read, doubtful = choice([topic for topic in there if not topic.system], of)
            every += clients_read
            for topic in doubtful:
                unreadable(topic, undecided(self._paths, topic))
        for topic, log in ledgers(client, self._paths, every, unreadable):
            name, part = name_of(of.named(topic)), name_of(topic)
            closed = tuple(LedgerToCheck(name, part, log.topic.owner, info) for info in log.ledgers if info.closed_ms)
            parts.setdefault(name, []).append(ObservedTopic(topic, closed))
        observed = {name: some for name, some in parts.items() if name in kept or _matters(settings, name, some)}
        dropped = [name for name in sorted(observed) if name not in kept][settings.max_topics :]
        for name in dropped:
            del observed[name]
        left = f"{many(len(dropped), 'topic is', 'topics are')} not observed: {first(dropped)}"
        return observed, bad, f"read_priority.max_topics is {settings.max_topics}; {left}" if dropped else ""

    def _namespace(self, settings: ReadPrioritySettings, name: str) -> NamespaceView:
        declared = declared_of(settings.declared, name)
        try:
            return NamespaceView(name, declared, self._admin.policy(scope_of(name)).view())
        except TrueupError as error:
            return NamespaceView(name, declared, None, str(error))

    def _topic(
        self, settings: ReadPrioritySettings, name: str, parts: Sequence[ObservedTopic], problem: str
    ) -> TopicView:
        namespace, local = _split(name)
        copies = self._checker.of(ledger for part in parts for ledger in part.wanted)
        view = TopicView(namespace, local, _declared(settings, name), None, None, copies, problem)
        if problem:
            return view
        try:
            own, merged = self._policies(name)
        except TrueupError as error:
            return view._replace(problem=str(error))
        return view._replace(policy=own, applied=merged)

    def _policies(self, name: str) -> tuple[PolicyView, PolicyView]:
        """The policy of a topic itself, and the one in force. While policies of topics are disabled, there are none."""
        scope = scope_of(name)
        try:
            return self._admin.policy(scope).view(), self._admin.applied(scope).view()
        except NotEnabled:
            return PolicyView(), PolicyView()


def name_of(topic: PulsarTopic) -> str:
    """tenant/namespace/topic."""
    return f"{topic.tenant}/{topic.namespace}/{topic.local}"


def _split(name: str) -> tuple[str, str]:
    tenant, namespace, local = name.split("/", 2)
    return f"{tenant}/{namespace}", local


def _declared(settings: ReadPrioritySettings, name: str) -> Declared | None:
    return declared_of(settings.declared, *_split(name))


def _concerned(settings: ReadPrioritySettings, namespace: str, kept: frozenset[str]) -> bool:
    """Whether a priority may be declared for a namespace or for topics of it."""
    if declared_of(settings.declared, namespace) is not None or any(_within(name, namespace) for name in kept):
        return True
    return any(regex_of(pattern) is not None or _within(pattern, namespace) for pattern in settings.declared)


def _within(name: str, namespace: str) -> bool:
    return name == namespace or name.startswith(f"{namespace}/")


def _matters(settings: ReadPrioritySettings, name: str, parts: Sequence[ObservedTopic]) -> bool:
    """Whether the priority has an effect on a topic, and may be declared for it or for its namespace."""
    namespace, _ = _split(name)
    declared = _declared(settings, name)
    if declared is not None and declared.level is Level.TOPIC:
        return True
    if declared is None and declared_of(settings.declared, namespace) is None:
        return False
    return any(ledger.info.complete for part in parts for ledger in part.wanted)
