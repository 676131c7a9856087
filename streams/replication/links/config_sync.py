"""Reconciles topics, settings, groups and rights at the target of a link.

Mode observe executes nothing, approve executes approved actions, enforce executes all. Records are copied to a topic
only after the actions that must precede them.
"""

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from zlib import crc32

from trueup.connectors.replication.config_sync import Alignment, Outcome, TopicPairs
from trueup.state.common.errors import TrueupError
from trueup.state.replication.config_sync import (
    AclScope,
    Action,
    AlignmentPolicy,
    ChangeKind,
    Right,
    diff,
    diff_rights,
    disputed,
)
from trueup.state.replication.settings import LinkSettings as Declared
from trueup.streams.replication.links.link import Link, Note
from trueup.streams.replication.links.memory import rights_text, topics_from, topics_text
from trueup.streams.replication.links.snapshot import TargetHold
from trueup.streams.runtime.stream import AWAITING, PlanRow

FINAL = ("refused", "skipped")
"""Results that do not change until an operator intervenes."""


class CreatedTopics:
    """Topics that a link created at its target. A topic is removed when an opposite link creates a copy of it.
    ``remember``: the function that stores them, so that they survive restarts. Safe to use from several threads."""

    def __init__(self, text: str = "[]", remember: Callable[[str], None] = lambda _text: None) -> None:
        self._topics = frozenset(topics_from(text))
        self._remember, self._changing = remember, threading.Lock()

    def add(self, topics: Iterable[str]) -> None:
        """Add topics before the link creates them."""
        with self._changing:
            self._become(self._topics | set(topics))

    def discard(self, topics: Iterable[str]) -> None:
        """Remove topics before an opposite link creates copies of them."""
        with self._changing:
            self._become(self._topics - set(topics))

    def _become(self, after: frozenset[str]) -> None:
        if after != self._topics:
            self._remember(topics_text(after))
            self._topics = after

    def __contains__(self, topic: str) -> bool:
        """Whether the link created the topic."""
        return topic in self._topics


class Aligner:
    """The alignment of one link. One thread reconciles, several threads read. ``backwards``: the alignments of all
    links from the target to the source, also of those that copy nothing now."""

    def __init__(
        self,
        link: Link,
        alignment: Alignment,
        rights: Iterable[Right],
        opposite: Callable[[], "Aligner | None"],
        note: Note,
        remember: Callable[[str], None],
        created: CreatedTopics | None = None,
        backwards: Callable[[], Iterable["Aligner"]] = tuple,
    ) -> None:
        self._link, self._alignment, self._note, self._opposite = link, alignment, note, opposite
        self._made, self._disputed = created or CreatedTopics(), frozenset[str]()
        self._remember, self._backwards = remember, backwards
        self._rights = set(rights)
        self._known: frozenset[str] = frozenset()
        self._approved: set[str] = set()
        self._refused: dict[str, Outcome] = {}
        self.actions: dict[str, Action] = {}
        self.problems: Mapping[str, str] = {}
        self.seen: TopicPairs | None = None

    def reconcile(self, groups: Sequence[str]) -> None:
        """Compare both clusters and execute the actions that are permitted. Raises a `TrueupError`; the next pass
        compares again. Settings of groups that cannot be compared hold back no action on topics."""
        declared = self._link.declared
        called = self._link.called(self._link.snapshot.facts.source.topics)
        actions = self._differences(declared, called, groups)
        settings, failed = self._group_differences(declared, groups)
        actions |= settings
        due = {
            name: action
            for name, action in actions.items()
            if self._may(declared.mode, name) and not (failed and name in settings)
        }
        # Stored before the rights are created, so that a right that the source revokes is deleted, even after a crash.
        self._answer_for(
            self._rights | {a.right for a in due.values() if a.right and a.kind in (ChangeKind.ALLOW, ChangeKind.DENY)}
        )
        self._create(action.topic for action in due.values() if action.kind is ChangeKind.CREATE)
        outcomes = self._alignment.apply(list(due.values())) if due else []
        done = [outcome for outcome in outcomes if outcome.result == "done"]
        before = self._refused
        self._refused = {name_of(self._link.name, o.action): o for o in outcomes if o.result != "done"}
        for outcome in outcomes:
            previous = before.get(name_of(self._link.name, outcome.action))
            # A refusal that repeats at every pass is one row of the history.
            if previous is None or previous.result != outcome.result:
                self._say(outcome)
        left = [outcome.action for outcome in done]
        self.actions = {name: action for name, action in actions.items() if action not in left}
        self._approved &= self.actions.keys()
        self._link.update(
            waiting={action.topic: self._hold(name, action) for name, action in self.actions.items() if action.first},
            compared=frozenset(called),
        )
        if failed is not None:
            raise failed

    def _create(self, topics: Iterable[str]) -> None:
        """Store that this link creates these topics at the target, so that the source is their origin even if an
        opposite link created them there before."""
        if created := list(topics):
            self._made.add(created)
            for other in self._backwards():
                other._made.discard(other._link.called(created).values())

    def _hold(self, name: str, action: Action) -> TargetHold:
        row = self._row(name, action, self._link.declared.mode)
        detail, stage = row.evidence["detail"], row.stage
        text = f"{stage}: {action.text} (topic {action.topic} at the target)" + (f"; {detail}" if detail else "")
        return TargetHold(text, stage == AWAITING, stage in FINAL)

    def _differences(self, declared: Declared, called: Mapping[str, str], groups: Sequence[str]) -> dict[str, Action]:
        self._known = self._known or self._alignment.known()
        seen = self._alignment.look(called)
        self.problems, self.seen = seen.problems, seen
        # A topic that was recreated at a source that lost its data does not have the intended settings.
        others = self._link.others({name: topic.id for name, topic in seen.source.items()})
        called = {name: target for name, target in called.items() if name not in others}
        policy = AlignmentPolicy(called, declared.align, declared.config_exclude, self._known, self._origins(called))
        self._dispute(seen, policy)
        actions = diff(seen.source, seen.target, policy)
        if "acls" in declared.align and not others:
            actions += self._right_differences(declared, called, groups)
        return self._named(actions)

    def _group_differences(
        self, declared: Declared, groups: Sequence[str]
    ) -> tuple[dict[str, Action], TrueupError | None]:
        """The actions on settings of groups; if they cannot be compared, those of the pass before, and the reason."""
        if "groups" not in declared.align:
            return {}, None
        try:
            back = self._opposite() is not None
            return self._named(self._alignment.groups(groups, declared.config_exclude, back)), None
        except TrueupError as error:
            return {name: a for name, a in self.actions.items() if a.kind is ChangeKind.SET_GROUP}, error

    def _named(self, actions: Iterable[Action]) -> dict[str, Action]:
        return {name_of(self._link.name, action): action for action in actions}

    def _origins(self, called: Mapping[str, str]) -> frozenset[str]:
        """Source topics that the opposite link copies back, except those that only this link created."""
        if (opposite := self._opposite()) is None:
            return frozenset()
        back = opposite._link.called(called.values())
        return frozenset(
            name
            for name, target in called.items()
            if back.get(target) == name and (target not in self._made or name in opposite._made)
        )

    def _dispute(self, seen: TopicPairs, policy: AlignmentPolicy) -> None:
        """Note once each topic whose settings differ and whose origin is unknown."""
        opposite = self._opposite()
        topics = frozenset(
            topic
            for topic in disputed(seen.source, seen.target, policy)
            if opposite is not None and (topic not in opposite._made or policy.topics[topic] in self._made)
        )
        for topic in sorted(topics - self._disputed):
            creator = "both links" if policy.topics[topic] in self._made else "no link"
            text = f"{topic}: its settings differ, it is copied in both directions, and {creator} created it"
            self._note(self._link.name, "found", "alignment.origin-unknown", text, "alignment.origin-unknown")
        self._disputed = topics

    def _right_differences(self, declared: Declared, called: Mapping[str, str], groups: Sequence[str]) -> list[Action]:
        here, there = self._alignment.rights()
        rename = declared.rename.replace("{source}", declared.source)
        scope = AclScope(called, groups, self._opposite() is not None, rename)
        actions, rights = diff_rights(here, there, scope, self._rights)
        self._answer_for(rights)
        return actions

    def _answer_for(self, rights: set[Right]) -> None:
        if rights != self._rights:
            self._remember(rights_text(rights))
            self._rights = rights

    def _may(self, mode: str, name: str) -> bool:
        return mode == "enforce" or (mode == "approve" and name in self._approved)

    def _say(self, outcome: Outcome) -> None:
        action, detail = outcome.action, f": {outcome.detail}" if outcome.detail else ""
        topic = f"{action.topic}: " if action.topic else ""
        self._note(self._link.name, "align", outcome.result, f"{topic}{action.text}{detail}", action.reason)

    def rows(self) -> list[PlanRow]:
        """The pending actions, as rows of the plan."""
        mode = self._link.declared.mode
        return [self._row(name, action, mode) for name, action in self.actions.items()]

    def _row(self, name: str, action: Action, mode: str) -> PlanRow:
        refused = self._refused.get(name)
        waits = mode == "approve" and name not in self._approved
        stage = refused.result if refused else AWAITING if waits else "planned"
        return PlanRow(
            name,
            action.kind.name.lower(),
            action.reason,
            action.text,
            stage,
            {"link": self._link.name, "topic": action.topic},
            evidence={"first": action.first, "detail": refused.detail if refused else ""},
        )

    def approve(self, names: Iterable[str]) -> None:
        """Approve these actions. The next pass executes them."""
        self._approved |= set(names) & self.actions.keys()


def name_of(link: str, action: Action) -> str:
    """The name of an action; it changes with any field of the action."""
    what = json.dumps(
        [action.kind, action.topic, action.partitions, sorted(action.configs.items()), action.right, action.group]
    )
    return f"align-{link}-{crc32(what.encode()):08x}"
