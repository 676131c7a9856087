"""The real decisions, lifecycle, executor and reconciler over the simulated cluster; checkers that know only the truth.

The application crashes between any two of its steps and restarts from its journal. The admin API is silent, refuses,
applies late or not at all; another client changes policies; copies break, return, and cannot be seen.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.journals import newest
from tests.simulation.checkers import Violation
from tests.simulation.read_priority.world import (
    BK,
    DECLARED,
    FIELD,
    LEVEL_OF_TOPIC,
    NAME_OF,
    NAMESPACES,
    TOPICS,
    TS,
    Raw,
    World,
    fields_of,
)
from trueup.connectors.pulsar.admin.client import PolicyScope
from trueup.connectors.pulsar.admin.policies import OffloadPolicy
from trueup.state.common.errors import Refused, Retry, TrueupError, Unknown
from trueup.state.read_priority.copies import CopyCheck, CopyState, LedgerCopies
from trueup.state.read_priority.policies import BrokerFacts, PolicyView
from trueup.state.read_priority.settings import ReadPrioritySettings, declared_of
from trueup.state.read_priority.tiers import ReadPriority
from trueup.state.read_priority.view import NamespaceView, PriorityObservation, TopicView
from trueup.streams.config.live import LiveSection
from trueup.streams.read_priority.executor import PolicyWriter
from trueup.streams.read_priority.reconciler import ReadPriorityReconciler

STEPS, CALM = 80, 60
STALL_LOOKS, SETTLE_LOOKS, SETTLE_S = 2, 3, 20.0


class Crash(BaseException):
    """Crash of the application."""


class Journal:
    """An in-memory topic whose writes fail now and then, possibly after the record was written."""

    def __init__(self, random: Random) -> None:
        self.random, self.records, self.calm = random, dict[bytes, Any](), False

    def put(self, records: Iterable[tuple[str, bytes, Any]]) -> None:
        for _, key, value in records:
            fails = not self.calm and self.random.random() < 0.03
            if not fails or self.random.random() < 0.5:
                self.records.pop(key, None)
                if value is not None:
                    self.records[key] = value
            if fails:
                raise Retry("the journal", "no response", "again")

    def newest(self, what: str) -> dict[bytes, Any]:
        return newest(what, self.records)


@dataclass
class Look:
    """What could be seen at one pass. ``value``: the priority in force for topics whose policy was seen; ``bad`` and
    ``clear``: topics with a priority with which brokers stall, or read everything."""

    at_ms: int
    value: dict[str, str] = field(default_factory=dict)
    bad: set[tuple[str, str]] = field(default_factory=set)
    clear: set[tuple[str, str]] = field(default_factory=set)


class Admin:
    """Implements `streams.read_priority.executor.PolicyAdmin`. Every write is checked against the truth."""

    def __init__(self, world: World, checker: "Checker") -> None:
        self.world, self.checker, self.calm = world, checker, False
        self.delayed: dict[str, tuple[int, Raw | None]] = {}

    def policy(self, scope: PolicyScope) -> OffloadPolicy:
        self.faults(Retry)
        if not self.calm and self.world.random.random() < 0.02:
            self.world.interfere(str(scope))
        return OffloadPolicy(self.shown(str(scope)))

    def shown(self, name: str) -> Raw | None:
        """What the broker shows. A policy that was written a moment ago may not be shown yet."""
        until_ms, before = self.delayed.get(name, (0, None))
        return before if self.world.now_ms < until_ms else self.world.policies.get(name)

    def applied(self, scope: PolicyScope) -> OffloadPolicy:
        self.faults(Retry)
        return OffloadPolicy(self.world.merged(str(scope)))

    def set(self, scope: PolicyScope, policy: OffloadPolicy) -> None:
        self.write(str(scope), policy.body())

    def remove(self, scope: PolicyScope) -> None:
        self.write(str(scope), None)

    def unload(self, scope: PolicyScope) -> None:
        self.faults(Unknown)
        self.checker.unloaded(str(scope))

    def write(self, name: str, body: Raw | None) -> None:
        random, before = self.world.random, self.world.policies.get(name)
        self.faults(Retry)
        self.checker.written(name, before, body)
        if not self.calm and random.random() < 0.05:
            raise Refused("the broker to store it", "HTTP 412", "again")
        self.world.replaced[name] = (before or {}).get(FIELD)
        lost = not self.calm and random.random() < 0.1
        if not lost or random.random() < 0.5:
            self.world.policies.pop(name, None)
            if body is not None:
                taken = {field: value for field, value in body.items() if value is not None}
                if not self.calm and random.random() < 0.05:
                    taken.pop(FIELD, None)  # status 204, and no value stored
                self.world.policies[name] = taken
            self.checker.ours(name, before, (body or {}).get(FIELD))
            if not self.calm and random.random() < 0.2:
                self.delayed[name] = (self.world.now_ms + random.randint(1, 5_000), before)
        self.dies()
        if lost:
            raise Unknown("a response", "none", "observe")
        if not self.calm and random.random() < 0.05:
            self.world.interfere(name)

    def faults(self, kind: type[TrueupError]) -> None:
        self.dies()
        if not self.calm and self.world.random.random() < 0.02:
            raise kind("a response", "none", "again")

    def dies(self) -> None:
        if not self.calm and self.world.random.random() < 0.01:
            raise Crash


class Observer:
    """Implements `streams.read_priority.reconciler.Observes`: what an observer would see of the world."""

    def __init__(self, world: World, admin: Admin, checker: "Checker") -> None:
        self.world, self.admin, self.checker = world, admin, checker

    def observe(
        self, chosen: ReadPrioritySettings, kept: Iterable[str], hot: Callable[[str], bool]
    ) -> PriorityObservation:
        world = self.world
        if not self.admin.calm and world.random.random() < 0.02:
            raise Retry("ZooKeeper", "no response", "again")
        began_ms = world.now_ms
        self.checker.look = look = Look(began_ms)
        silent = not self.admin.calm and world.random.random() < 0.05
        value = ReadPriority(DECLARED_VALUE[world.broker_value])
        brokers = () if silent else (BrokerFacts("b", (4, 2, 4), value, -1),)
        names = {} if silent else {name: self._namespace(chosen, name) for name in NAMESPACES}
        topics = [self._topic(chosen, name, look, silent) for name in TOPICS]
        self.checker.looks.append(look)
        return PriorityObservation(began_ms, world.now_ms, brokers, names, topics, "silent" if silent else "")

    def _namespace(self, chosen: ReadPrioritySettings, name: str) -> NamespaceView:
        declared = declared_of(chosen.declared, name)
        try:
            return NamespaceView(name, declared, self.admin.policy(PolicyScope(*name.split("/"))).view())
        except Retry as error:
            return NamespaceView(name, declared, None, str(error))

    def _topic(self, chosen: ReadPrioritySettings, name: str, look: Look, silent: bool) -> TopicView:
        world, (namespace, _, local) = self.world, name.rpartition("/")
        checks = tuple(self._copies(name, one) for one in world.ledgers[name])
        declared = declared_of(chosen.declared, namespace, local)
        view = TopicView(namespace, local, declared, None, None, checks, "silent")
        look.bad |= {(name, value) for value in (BK, TS) if world.bad(name, value)}
        look.clear |= {(name, value) for value in (BK, TS) if world.clear(name, value)}
        if silent:
            return view
        try:
            own = self.admin.policy(PolicyScope(*name.split("/"))).view()
        except Retry as error:
            return view._replace(problem=str(error))
        look.value[name] = world.value(name)[0]
        return view._replace(policy=own, applied=PolicyView(), problem="")

    def _copies(self, name: str, one: Any) -> LedgerCopies:
        def check(tier: str) -> CopyCheck:
            if tier == "tiered" and not one.info.complete:
                return CopyCheck(CopyState.ABSENT, "", self.world.now_ms)
            if tier in one.hidden:
                return CopyCheck(CopyState.UNKNOWN, "hidden", self.world.now_ms)
            return CopyCheck(CopyState.WHOLE if one.well[tier] else CopyState.GONE, "", self.world.now_ms)

        return LedgerCopies(name, one.info, check("bookkeeper"), check("tiered"))


DECLARED_VALUE = {BK: "bookkeeper-first", TS: "tiered-storage-first"}


class Checker:
    """Compares each write with the truth, without the code that decides."""

    def __init__(self, world: World) -> None:
        self.world, self.looks, self.look = world, list[Look](), Look(0)
        self.mode, self.approved = "enforce", set[str]()
        self.switched: dict[str, set[tuple[int, str, Any]]] = {}
        """What may be Trueup's switches, by topic: time, value, value before. A write can be both a switch and a
        return, and then both stay possible."""
        self.mine: dict[str, Raw] = {}
        """Policies that Trueup made, as written."""
        self.writes = 0

    def written(self, name: str, before: Raw | None, body: Raw | None) -> None:
        """Called before a write takes effect."""
        self.writes += 1
        if self.mode == "observe":
            raise Violation(f"{name} was written in mode observe")
        if self.mode == "approve" and not any(f"/{name}/" in action for action in self.approved):
            raise Violation(f"{name} was written without an approval")
        self._fields(name, before, body)
        want, had = (body or {}).get(FIELD), (before or {}).get(FIELD)
        if name in NAMESPACES:
            if want != NAME_OF[DECLARED[name]]:
                raise Violation(f"{name} got {want}, which is not declared")
            self._harmless(name, str(want))
            return
        if name not in self.look.value:
            raise Violation(f"{name} was changed although its policy was not seen")
        self._topic(name, want, had)

    def _fields(self, name: str, before: Raw | None, body: Raw | None) -> None:
        if body is None:
            made = self.mine.get(name)
            if made is None or fields_of(before) != fields_of(made):
                raise Violation(f"the policy of {name} was removed, and Trueup did not make it")
        elif before is None:
            secret = [field for field in body if "Credential" in field and body[field]]
            if secret or not fields_of(body).items() >= {"managedLedgerOffloadDriver": "S3"}.items():
                raise Violation(f"the new policy of {name} has credentials, or no driver")
        elif fields_of(body) != fields_of(before):
            raise Violation(f"fields of {name} were lost: {fields_of(before)}, {fields_of(body)}")

    def _topic(self, name: str, want: Any, had: Any) -> None:
        declared = NAME_OF.get(DECLARED.get(name, "")) if name in LEVEL_OF_TOPIC else None
        if want is not None and declared == want and not self._worse(name, want):
            return
        mine = self.switched.setdefault(name, set())
        returns = any(want in (before, declared) and self._settled(name, want, at) for at, _, before in mine)
        switches = want is not None and self._stalled(name, want)
        if not returns and not switches:
            raise Violation(f"{name} got {want} after {had}: neither declared nor needed; {self.looks[-3:]}")
        if switches:
            mine.add((self.world.now_ms, want, had))

    def _stalled(self, name: str, want: str) -> bool:
        """Whether the last looks found that it stalls, and that this priority helps."""
        known = self.looks[-STALL_LOOKS:]
        helps = [look.value.get(name) == other(want) and (name, want) in look.clear for look in known]
        return len(known) == STALL_LOOKS and all(helps) and all((name, other(want)) in look.bad for look in known)

    def _settled(self, name: str, want: Any, since_ms: int) -> bool:
        """Whether the last looks at it found no stall with the priority from before, for long enough."""
        known = self.looks[-SETTLE_LOOKS:]
        back = want or self.world.merged(f"{name.rpartition('/')[0]}/none").get(FIELD)
        long = known[-1].at_ms - since_ms >= 1000 * SETTLE_S
        return long and len(known) == SETTLE_LOOKS and all((name, back) in look.clear for look in known)

    def _worse(self, name: str, want: str) -> bool:
        """Whether a copy that is read instead of another one could not be seen to be whole."""
        moved = (one for one in self.world.ledgers[name] if one.opened(want) != one.opened(other(want)))
        return not all(one.clear(want) for one in moved)

    def _harmless(self, namespace: str, want: str) -> None:
        """No topic that inherits it reads worse."""
        for topic in TOPICS:
            inherits = topic.startswith(f"{namespace}/") and self.world.policies.get(topic, {}).get(FIELD) is None
            if inherits and self._worse(topic, want):
                raise Violation(f"{namespace} got {want}, and {topic} may stall")

    def ours(self, name: str, before: Raw | None, want: Any) -> None:
        """A write took effect. If it stored no priority, another client may still set the wanted one, and nobody can
        tell."""
        now = (self.world.policies.get(name) or {}).get(FIELD)
        self.switched[name] = {one for one in self.switched.get(name, ()) if one[1] == now or now != want}
        if before is None and name in self.world.policies:
            self.mine[name] = dict(self.world.policies[name])

    def unloaded(self, name: str) -> None:
        if not self.switched.get(name):
            raise Violation(f"{name} was unloaded and is not switched")


def other(value: str) -> str:
    return TS if value == BK else BK


class Simulation:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = World(self.random)
        self.journal, self.checker = Journal(self.random), Checker(self.world)
        self.admin = Admin(self.world, self.checker)
        self.settings = ReadPrioritySettings(
            admin=["http://b"],
            mode="enforce",
            declared=DECLARED,
            stall_looks=STALL_LOOKS,
            settle_looks=SETTLE_LOOKS,
            settle_s=SETTLE_S,
            unload=self.random.random() < 0.5,
        )
        self.reconciler = self._started()

    def _started(self) -> ReadPriorityReconciler:
        made = ReadPriorityReconciler(
            LiveSection(lambda: self._chosen()),
            Observer(self.world, self.admin, self.checker),
            lambda keep: PolicyWriter(self.admin, keep, lambda: self.world.now_ms),
            self.journal,
            lambda _: None,
        )
        made.load()
        return made

    def _chosen(self) -> ReadPrioritySettings:
        from dataclasses import replace

        return replace(self.settings, mode=self.checker.mode)

    def run(self) -> None:
        """Faults, and then calm. Raises `Violation`."""
        for _ in range(STEPS):
            self._step()
        self.checker.mode = "enforce"
        self.admin.calm = self.journal.calm = True
        self.world.calm()
        for _ in range(CALM):
            self._pass(10_000)
        self._ended()

    def _step(self) -> None:
        if self.random.random() < 0.05:
            self.checker.mode = self.random.choice(("observe", "approve", "enforce"))
        self.world.meanwhile()
        if self.checker.mode == "approve" and self.random.random() < 0.3:
            self._approve(self.reconciler.decided.due)
        self._pass(self.random.randint(500, 15_000))

    def _approve(self, due: Sequence[Any]) -> None:
        for change in due:
            if self.random.random() < 0.5:
                self.checker.approved.add(f"{change.id}/")
                self.reconciler.approve([change.id])

    def _pass(self, step_ms: int) -> None:
        self.world.now_ms += step_ms
        try:
            self.reconciler.reconcile()
        except Crash:
            self.reconciler = self._started()

    def _without_model(self, namespace: str) -> bool:
        """Whether a namespace has no policy, and no topic shows what it would inherit."""
        own = [topic in self.world.policies for topic in TOPICS if topic.startswith(f"{namespace}/")]
        return namespace not in self.world.policies and all(own)

    def _ended(self) -> None:
        """After the calm everything is as declared, except topics with a foreign policy."""
        if switched := [name for name, kept in self.reconciler.kept.items() if kept.switch is not None]:
            raise Violation(f"still switched: {switched}: {self.reconciler.kept}")
        for topic in TOPICS:
            declared = NAME_OF.get(DECLARED.get(topic) or DECLARED[topic.rpartition("/")[0]])
            value, level = self.world.value(topic)
            masked = level == "topic" and topic not in LEVEL_OF_TOPIC
            masked |= self._without_model(topic.rpartition("/")[0])
            if declared is not None and value != declared and not masked:
                raise Violation(
                    f"{topic} has {value} from the {level}, and {declared} is declared: {self.reconciler.decided}"
                )
