"""Reads topics and ACLs of both clusters for the comparison of `state.replication.config_sync`, and executes its
actions at the target.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from trueup.connectors.replication.ports import WITHOUT_MEMBERS, ClusterAdmin
from trueup.state.common.errors import TrueupError, ended
from trueup.state.replication.config_sync import Action, ChangeKind, Right, TopicConfigs
from trueup.state.replication.group_settings import diff_groups, may_change


@dataclass(frozen=True, slots=True)
class TopicPairs:
    """Both sides of some topics, for `state.replication.config_sync.diff`."""

    source: Mapping[str, TopicConfigs]
    target: Mapping[str, TopicConfigs]
    problems: Mapping[str, str] = field(default_factory=dict)
    """The omitted topics of the source with the reason. A topic that cannot be read must not count as missing."""


class Outcome(NamedTuple):
    """The result of an action."""

    action: Action
    result: str
    """One of these words:

    done     the action was executed, or nothing was to be done
    refused  the target refuses the action; an operator must change something
    retry    the next pass may succeed
    unknown  the response was lost; the next read shows the result
    skipped  the action was not attempted, because an earlier action was not done
    """
    detail: str = ""


class Alignment:
    """Compares and changes; decides nothing. Calls block; errors of a whole cluster are those of `ClusterAdmin`."""

    def __init__(self, source: ClusterAdmin, target: ClusterAdmin) -> None:
        self._source, self._target = source, target

    def look(self, called: Mapping[str, str]) -> TopicPairs:
        """Existing topics of the source (keys) and of the target (values)."""
        here, wrong_here = _topics(self._source, called)
        there, wrong_there = _topics(self._target, called.values())
        problems = {name: wrong_there[to] for name, to in called.items() if to in wrong_there} | wrong_here
        return TopicPairs({name: topic for name, topic in here.items() if name not in problems}, there, problems)

    def known(self) -> frozenset[str]:
        """Topic settings that the target's version supports; empty if unknown."""
        return self._target.known_settings()

    def rights(self) -> tuple[list[Right], list[Right]]:
        """ACLs on topics and groups at the source and at the target. Raises `Stop` if there is no authorizer."""
        return self._source.rights(), self._target.rights()

    def groups(self, groups: Collection[str], exclude: Collection[str], back: bool) -> list[Action]:
        """The actions on settings of groups (`state.replication.group_settings`). Members are looked for only if
        something differs."""
        here = self._source.group_configs(groups) if groups else {}
        there = self._target.group_configs(groups) if any(here.values()) else {}
        if not (actions := diff_groups(here, there, exclude)):
            return []
        source, target = self._source.groups().states() if back else {}, self._target.groups().states()
        return [a for a in actions if may_change(_runs(source, a.group), _runs(target, a.group), back)]

    def apply(self, actions: Sequence[Action]) -> list[Outcome]:
        """Execute the actions in order, those of a kind together. No permission is granted before all denials."""
        outcomes: list[Outcome] = []
        for kind, alike in groupby(sorted(actions, key=lambda action: action.kind), lambda action: action.kind):
            together = list(alike)
            if kind is ChangeKind.ALLOW and (
                undone := [o for o in outcomes if o.action.kind is ChangeKind.DENY and o.result != "done"]
            ):
                outcomes += [Outcome(action, "skipped", undone[0].detail) for action in together]
            else:
                outcomes += self._together(kind, together)
        return outcomes

    def _together(self, kind: ChangeKind, actions: Sequence[Action]) -> list[Outcome]:
        answers = self._target.apply(kind, actions)
        return [self._outcome(action, answer) for action, answer in zip(actions, answers, strict=True)]

    def _outcome(self, action: Action, answer: object) -> Outcome:
        if not isinstance(answer, TrueupError):
            return Outcome(action, "done")
        if action.kind is ChangeKind.GROW and self._has(action.topic, action.partitions):
            return Outcome(action, "done", "the topic had them already")
        return Outcome(action, ended(answer), str(answer))

    def _has(self, name: str, partitions: int) -> bool:
        """Whether a topic of the target has this number of partitions."""
        topic = self._target.topics([name], configs=False).get(name)
        return topic is not None and len(topic.logs) >= partitions


def _runs(states: Mapping[str, str], group: str) -> bool | None:
    """Whether a group has members; None if its cluster does not tell."""
    state = states.get(group, "")
    return None if state == "unknown" else state not in WITHOUT_MEMBERS


def _topics(side: ClusterAdmin, names: Iterable[str]) -> tuple[dict[str, TopicConfigs], dict[str, str]]:
    topics = side.topics(names)
    good = {name: topic for name, topic in topics.items() if not topic.error}
    whole = {name: TopicConfigs(len(topic.logs), topic.configs, topic.id) for name, topic in good.items()}
    return whole, {name: topic.error for name, topic in topics.items() if topic.error}
