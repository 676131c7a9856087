"""Invariants of read priorities: each write of a policy is compared with what could be seen of the world before it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.simulation.checkers import Violation
from tests.simulation.pulsar import NAMESPACES, Brokers, owner_of
from tests.simulation.store import BK, FIELD, TS, Policies, Raw, fields_of, in_bookkeeper
from trueup.state.read_priority.lifecycle import PriorityState
from trueup.state.read_priority.settings import ReadPrioritySettings

STALL_LOOKS, SETTLE_LOOKS, SETTLE_S = 2, 3, 20.0
VALUES = {BK: "bookkeeper-first", TS: "tiered-storage-first"}
NAME_OF = {value: name for name, value in VALUES.items()}
DECLARED = {"t/b/loose": "unmanaged", "t/a/own": VALUES[BK], "t/a": VALUES[TS], "t/b": VALUES[BK]}
OWN_LEVEL = frozenset({"t/a/own"})
"""Topics with a declared policy of their own."""


def other(value: str) -> str:
    return TS if value == BK else BK


class CopiesSeen(NamedTuple):
    """What could be seen of a closed ledger in both tiers. True: the tier has it in full, None: that is not known."""

    complete: bool
    dropped: bool
    bookkeeper: bool | None
    tiered: bool | None

    def opened(self, value: str) -> bool | None:
        """The state of the tier that a broker opens (ManagedLedgerImpl.getLedgerHandle)."""
        return self.tiered if self.complete and (value == TS or self.dropped) else self.bookkeeper

    @property
    def lost(self) -> bool:
        return self.bookkeeper is False and self.tiered is False

    @property
    def moves(self) -> bool:
        """Whether brokers open another tier with the other priority."""
        return self.complete and not self.dropped


@dataclass
class Look:
    """What one pass could see: the copies of each topic's ledgers, and the policies that were read."""

    at_ms: int
    broker_value: str
    copies: dict[str, list[CopiesSeen]] = field(default_factory=dict)
    shown: dict[str, Raw | None] = field(default_factory=dict)

    def value(self, topic: str) -> str | None:
        """The priority in force for a topic; None if a policy was not read."""
        names = (topic, topic.rpartition("/")[0])
        if not self.shown.keys() >= set(names):
            return None
        own = ((self.shown[name] or {}).get(FIELD) for name in names)
        return next((value for value in own if value is not None), self.broker_value)

    def bad(self, topic: str, value: str) -> bool:
        """Whether a broker stalls."""
        return any(one.opened(value) is False and not one.lost for one in self.copies.get(topic, ()))

    def clear(self, topic: str, value: str) -> bool:
        """Whether a broker reads all that any tier has."""
        return all(one.lost or one.opened(value) for one in self.copies.get(topic, ()))

    def worse(self, topic: str, value: str) -> bool:
        """Whether a copy that is read instead of another one could not be seen to be whole."""
        return not all(one.lost or one.opened(value) for one in self.copies.get(topic, ()) if one.moves)


class PriorityCheckers:
    """All checks of one run."""

    def __init__(self, brokers: Brokers, policies: Policies) -> None:
        self.brokers, self.policies = brokers, policies
        self.looks = [Look(0, policies.broker_value)]
        self.look: Look | None = None
        """The pass that observes now."""
        self.approved: set[str] = set()
        self.switched: dict[str, set[tuple[int, str, Any]]] = {}
        """What may be Trueup's switches, by topic: time, value, value before. A write can be both a switch and a
        return, and then both stay possible."""
        self.made: dict[str, Raw] = {}
        """Policies that Trueup made, as written."""
        self.writes = self.switches = 0

    # Passes

    def begin(self, at_ms: int) -> None:
        """A pass begins to observe."""
        self.look = Look(at_ms, self.policies.broker_value)

    def end(self, complete: bool) -> None:
        """It ends; an incomplete one does not count."""
        if complete and self.look is not None:
            self.looks.append(self.look)
        self.look = None

    def copies(self, topic: str, silent: frozenset[str], hidden: frozenset[int]) -> list[CopiesSeen]:
        """The closed ledgers of a topic. ``silent``: bookies without a response. ``hidden``: ledgers of which tiered
        storage shows nothing."""
        node, world, bucket = self.brokers.nodes[owner_of(topic)], self.brokers.world, self.brokers.bucket
        found = []
        for number, listed in sorted(node.ledgers.items()):
            ledger = world.ledgers.get(number)
            stored = None if ledger is not None and ledger.unreadable else in_bookkeeper(world, ledger, silent)
            tiered = None if listed.complete and number in hidden else self._tiered(bucket.whole, listed.copy)
            if listed.closed_ms:
                found.append(CopiesSeen(listed.complete, listed.dropped, stored, tiered))
        return found

    def _tiered(self, whole: Callable[[Any], bool], copy: Any) -> bool:
        return copy is not None and copy.complete and whole(copy.pair)

    # Acts

    def written(self, name: str, before: Raw | None, body: Raw | None, chosen: ReadPrioritySettings) -> None:
        """Called before a write takes effect."""
        self.writes += 1
        self._permitted(name, chosen)
        self._fields(name, before, body)
        want, had = (body or {}).get(FIELD), (before or {}).get(FIELD)
        if name in NAMESPACES:
            if want != NAME_OF[DECLARED[name]]:
                raise Violation(f"{name} got {want}, which is not declared")
            self._harmless(name, str(want))
        elif self.looks[-1].value(name) is None:
            raise Violation(f"{name} was changed although its policy was not seen")
        else:
            self._topic(name, want, had)

    def _permitted(self, name: str, chosen: ReadPrioritySettings) -> None:
        if chosen.mode == "observe":
            raise Violation(f"{name} was written in mode observe")
        if chosen.mode == "approve" and not any(f"/{name}/" in action for action in self.approved):
            raise Violation(f"{name} was written without an approval")

    def _fields(self, name: str, before: Raw | None, body: Raw | None) -> None:
        if body is None:
            made = self.made.get(name)
            if made is None or fields_of(before) != fields_of(made):
                raise Violation(f"the policy of {name} was removed, and Trueup did not make it")
        elif before is None:
            secret = [name for name in body if "Credential" in name and body[name]]
            if secret or not fields_of(body).items() >= {"managedLedgerOffloadDriver": "S3"}.items():
                raise Violation(f"the new policy of {name} has credentials, or no driver")
        elif fields_of(body) != fields_of(before):
            raise Violation(f"fields of {name} were lost: {fields_of(before)}, {fields_of(body)}")

    def _topic(self, name: str, want: Any, had: Any) -> None:
        declared = NAME_OF.get(DECLARED.get(name, "")) if name in OWN_LEVEL else None
        if want is not None and declared == want and not self.looks[-1].worse(name, want):
            return
        mine = self.switched.setdefault(name, set())
        returns = any(
            want in (before, declared) and (self._back(name, want) == value or self._settled(name, want, at))
            for at, value, before in mine
        )
        switches = want is not None and self._stalled(name, want)
        if not returns and not switches:
            raise Violation(f"{name} got {want} after {had}: neither declared nor needed; {self.looks[-3:]}")
        if switches:
            self.switches += 1
            mine.add((self.looks[-1].at_ms, want, had))

    def _stalled(self, name: str, want: str) -> bool:
        """Whether the last looks found that it stalls, and that this priority helps."""
        known = self.looks[-STALL_LOOKS:]
        helps = [look.value(name) == other(want) and look.clear(name, want) for look in known]
        return len(known) == STALL_LOOKS and all(helps) and all(look.bad(name, other(want)) for look in known)

    def _back(self, name: str, want: Any) -> str:
        """The priority in force after a return, as the last look showed it."""
        shown = (self.looks[-1].shown.get(name.rpartition("/")[0]) or {}).get(FIELD)
        return str(want or shown or self.policies.broker_value)

    def _settled(self, name: str, want: Any, since_ms: int) -> bool:
        """Whether the last looks at it found no stall with the priority from before, for long enough."""
        known, back = self.looks[-SETTLE_LOOKS:], self._back(name, want)
        long = known[-1].at_ms - since_ms >= 1000 * SETTLE_S
        return long and len(known) == SETTLE_LOOKS and all(look.clear(name, back) for look in known)

    def _harmless(self, namespace: str, want: str) -> None:
        """No topic that inherits it reads worse."""
        look = self.looks[-1]
        for topic in look.copies:
            inherits = (look.shown.get(topic) or {}).get(FIELD) is None
            if topic.startswith(f"{namespace}/") and inherits and look.worse(topic, want):
                raise Violation(f"{namespace} got {want}, and {topic} may stall")

    def ours(self, name: str, before: Raw | None, want: Any) -> None:
        """A write took effect. If it stored no priority, another client may still set the wanted one, and nobody can
        tell."""
        now = (self.policies.stored.get(name) or {}).get(FIELD)
        self.switched[name] = {one for one in self.switched.get(name, ()) if one[1] == now or now != want}
        if before is None and name in self.policies.stored:
            self.made[name] = dict(self.policies.stored[name])

    def unloading(self, name: str, chosen: ReadPrioritySettings) -> None:
        self._permitted(name, chosen)
        if not self.switched.get(name):
            raise Violation(f"{name} was unloaded and is not switched")

    # The end

    def settled(self, kept: Mapping[str, PriorityState]) -> None:
        """Without changes and faults, every topic that reads well as declared is as declared, and every other one has
        the priority with which it reads well."""
        look = self.looks[-1]
        for name, state in kept.items():
            if state.switch is not None and look.clear(name, self._restored(name, state.switch.before)):
                raise Violation(f"still switched: {name}: {state}")
        for topic in look.copies:
            declared = NAME_OF.get(DECLARED.get(topic) or DECLARED[topic.rpartition("/")[0]])
            value, level = self.policies.value(topic)
            stalls = declared is not None and look.bad(topic, value) and look.clear(topic, other(value))
            differs = declared is not None and value != declared and look.clear(topic, declared)
            if stalls or (differs and not self._blocked(topic, level)):
                raise Violation(f"{topic} has {value} from the {level}, and {declared} is declared: {look}")

    def _restored(self, topic: str, before: str | None) -> str:
        """The priority with which a switched topic would be read after its return."""
        own = DECLARED.get(topic) if topic in OWN_LEVEL else before
        namespace = self.policies.stored.get(topic.rpartition("/")[0], {}).get(FIELD)
        return NAME_OF[own] if own else str(namespace or self.policies.broker_value)

    def _blocked(self, topic: str, level: str) -> bool:
        """Whether what is declared cannot apply to a topic: it has a policy of another client, its namespace shows no
        policy to begin with, or a topic of the namespace would stall."""
        namespace, stored = topic.rpartition("/")[0], self.policies.stored
        if topic in OWN_LEVEL:
            return False
        alike = [name for name in self.looks[-1].copies if name.startswith(f"{namespace}/")]
        without_model = namespace not in stored and all(name in stored for name in alike)
        wanted = NAME_OF[DECLARED[namespace]]
        harmed = any(self.looks[-1].worse(name, wanted) for name in alike if stored.get(name, {}).get(FIELD) is None)
        return level == "topic" or without_model or harmed
