"""Differences between a link's topics and ACLs and those at its target, and the actions that remove them, as data.

**Partitions** only grow: a record keeps its partition number. **Settings** of a topic are copied if they are set on the
topic itself, and removed if they were removed there; settings that decide whether copied records are retained are also
copied from the cluster's defaults, and are set before the first record: old records with a short retention would be
deleted on arrival. Timestamps must be preserved, so the target must not overwrite or reject them.
If an opposite link copies a topic back, its settings are copied in one direction only: from the cluster where a client
created it to the one where a link created it.

**Rights** (ACLs) on topics and groups are copied for literal names and prefixes. An ACL on every resource (``*``)
becomes one for each topic or group of the link, because the target has others. Read permissions are granted at the
target; write permissions only if a link copies back, because otherwise the link is the only writer of a copy.
Permissions to alter or delete are never granted. Denials are copied in full. An ACL that is removed at the source is
removed at the target if this link created it or both once had it; ACLs on topics that are no longer copied remain.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from trueup.state.common.patterns import matches
from trueup.state.replication.changes import ChangeKind as ChangeKind

KEEPING = ("cleanup.policy", "max.message.bytes", "retention.bytes", "retention.ms")
"""Settings that decide whether copied records are retained; copied with any origin at the source."""
FOREVER = str((1 << 63) - 1)
TIMES = {
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": FOREVER,
    "message.timestamp.after.max.ms": FOREVER,
}
"""Settings that a target needs so that old records keep their timestamps (KIP-937)."""
READING = ("read", "describe", "describe_configs")


class Setting(NamedTuple):
    """An effective setting."""

    value: str
    own: bool
    """Whether the setting is set on the topic. Otherwise it is the default of the cluster."""


class TopicConfigs(NamedTuple):
    """A topic in the metadata of its cluster."""

    partitions: int
    configs: Mapping[str, Setting]
    """All effective settings."""
    id: str = ""
    """The id of the topic, empty if unknown."""


class Right(NamedTuple):
    """One ACL. The types and the operation are in lower case."""

    resource: str
    """The type of the resource: topic or group."""
    pattern: str
    """The type of the name: literal or prefixed."""
    name: str
    principal: str
    host: str
    operation: str
    permission: str
    """The type of the permission: allow or deny."""


class Action(NamedTuple):
    """One change at the target."""

    kind: ChangeKind
    topic: str
    reason: str
    """The id of a rule."""
    text: str
    partitions: int = 0
    configs: Mapping[str, str | None] = {}
    """The new values of settings, None for the default of the cluster."""
    right: Right | None = None
    first: bool = False
    """Whether the change is required before any record is copied to the topic."""
    group: str = ""
    """The consumer group that the change concerns, empty for other changes."""


@dataclass(frozen=True, slots=True)
class AlignmentPolicy:
    """What a link aligns."""

    topics: Mapping[str, str]
    """The name of each topic at the target, by its name at the source."""
    align: Collection[str] = ("partitions", "configs")
    """The setting ``align`` of the link."""
    exclude: Collection[str] = ()
    """The setting ``config_exclude`` of the link."""
    known: Collection[str] = field(default_factory=frozenset)
    """The settings that the version of the target supports. Empty means all."""
    origins: frozenset[str] = frozenset()
    """The topics of the source that an opposite link copies back and that may originate at the target. Their settings
    are not changed at the target."""


def diff(
    source: Mapping[str, TopicConfigs], target: Mapping[str, TopicConfigs], policy: AlignmentPolicy
) -> list[Action]:
    """The actions on the target's topics, in order. Topics that are not in ``source`` are not changed.

    A common target of several topics is created so that it retains all records; its settings are not changed later.
    """
    actions: list[Action] = []
    coming: dict[str, list[str]] = {}
    for name in sorted(policy.topics.keys() & source.keys()):
        coming.setdefault(policy.topics[name], []).append(name)
    for called, names in coming.items():
        count = max(source[name].partitions for name in names)
        configs = source[names[0]].configs if len(names) == 1 else {}
        there = target.get(called)
        if there is None:
            actions += _created(called, count, configs or _keeping([source[name].configs for name in names]), policy)
        else:
            actions += _grown(called, count, there, policy)
            actions += _set(called, configs, there, policy) if policy.origins.isdisjoint(names) else ()
    return sorted(actions, key=lambda action: action.kind)


def _keeping(many: Sequence[Mapping[str, Setting]]) -> dict[str, Setting]:
    """Settings that delete nothing earlier than each of these topics: the longest times and the largest sizes. If one
    is compacted everything is retained, because keys of different topics must not replace each other."""
    values = {name: [configs[name].value for configs in many if name in configs] for name in KEEPING}
    compacted = any(value != "delete" for value in values.pop("cleanup.policy"))
    settings = {"cleanup.policy": "delete"}
    for name, numbers in values.items():
        if numbers:
            all_of_it = name.startswith("retention") and (compacted or "-1" in numbers)
            settings[name] = "-1" if all_of_it else str(max(map(int, numbers)))
    return {name: Setting(value, True) for name, value in settings.items()}


def _created(topic: str, count: int, configs: Mapping[str, Setting], policy: AlignmentPolicy) -> Iterator[Action]:
    if "partitions" not in policy.align:
        return
    copied = {name: setting.value for name, setting in configs.items() if _is_copied(name, setting, policy)}
    needed = {name: value for name, value in TIMES.items() if not policy.known or name in policy.known}
    text = f"it does not exist; {_partitions(count)}, settings of its source"
    yield Action(ChangeKind.CREATE, topic, "alignment.topic-missing", text, count, {**copied, **needed}, first=True)


def _partitions(count: int) -> str:
    return f"{count} {'partition' if count == 1 else 'partitions'}"


def _is_copied(name: str, setting: Setting, policy: AlignmentPolicy) -> bool:
    """Whether a setting is copied to a new topic: retention settings always, others if settings are aligned."""
    if matches(policy.exclude, name) or (policy.known and name not in policy.known):
        return False
    return name in KEEPING or (setting.own and "configs" in policy.align)


def _grown(topic: str, count: int, there: TopicConfigs, policy: AlignmentPolicy) -> Iterator[Action]:
    if count > there.partitions and "partitions" in policy.align:
        text = f"{_partitions(there.partitions)}, {count} at the source"
        yield Action(ChangeKind.GROW, topic, "alignment.partitions-fewer", text, count)


def _set(topic: str, configs: Mapping[str, Setting], there: TopicConfigs, policy: AlignmentPolicy) -> Iterator[Action]:
    if "configs" not in policy.align or not configs:
        return
    secure: dict[str, str | None] = {
        name: value for name, value in TIMES.items() if name in there.configs and there.configs[name].value != value
    }
    other: dict[str, str | None] = {}
    for name, mine in configs.items():
        theirs = there.configs.get(name)
        if theirs is None or name in TIMES or matches(policy.exclude, name):
            continue
        if name in KEEPING:
            secure |= {name: mine.value} if mine.value != theirs.value else {}
        elif mine.own and mine.value != theirs.value:
            other[name] = mine.value
        elif theirs.own and not mine.own:
            other[name] = None
    for kind, rule, changed in (
        (ChangeKind.SECURE, "alignment.records-would-go", secure),
        (ChangeKind.SET, "alignment.settings-differ", other),
    ):
        if changed:
            text = ", ".join(_change(name, there.configs[name].value, changed[name]) for name in sorted(changed))
            yield Action(kind, topic, rule, text, configs=changed, first=kind is ChangeKind.SECURE)


def _change(name: str, before: str, after: str | None) -> str:
    return f"{name} {before} > {'the default' if after is None else after}"


@dataclass(frozen=True, slots=True)
class AclScope:
    """The scope of the ACLs of a link."""

    topics: Mapping[str, str]
    """The name of each topic at the target, by its name at the source."""
    groups: Collection[str] = ()
    """The names of the consumer groups."""
    back: bool = False
    """Whether a link copies these topics back."""
    rename: str = "{topic}"
    """The setting ``rename`` of the link, with the name of the source cluster filled in."""


def rights_of(source: Iterable[Right], scope: AclScope) -> set[Right]:
    """The ACLs at the target that correspond to these of the source."""
    return {
        right for original in source for place in _places(original, scope) for right in _operations(place, scope.back)
    }


def _places(right: Right, scope: AclScope) -> Iterator[Right]:
    """An ACL in its form at the target; none if the link does not copy its resource."""
    names = scope.topics if right.resource == "topic" else {group: group for group in scope.groups}
    if right.resource not in ("topic", "group"):
        return
    if right.pattern == "literal":
        yield from (right._replace(name=names[name]) for name in sorted(names) if right.name in (name, "*"))
    elif right.pattern == "prefixed" and any(name.startswith(right.name) for name in names):
        before, _, after = scope.rename.partition("{topic}") if right.resource == "topic" else ("", "", "")
        if not after:
            yield right._replace(name=before + right.name)
        else:
            yield from (
                right._replace(name=names[name], pattern="literal")
                for name in sorted(names)
                if name.startswith(right.name)
            )


def _operations(right: Right, back: bool) -> Iterator[Right]:
    if right.permission == "deny":
        yield right
        return
    allowed = READING[:2] if right.resource == "group" else (*READING, *(["write"] if back else []))
    yield from (right._replace(operation=operation) for operation in allowed if right.operation in (operation, "all"))


def disputed(
    source: Mapping[str, TopicConfigs], target: Mapping[str, TopicConfigs], policy: AlignmentPolicy
) -> list[str]:
    """Topics of ``policy.origins`` whose settings differ."""
    free = replace(policy, origins=frozenset())
    return [
        name
        for name in sorted(policy.origins & source.keys())
        if (there := target.get(policy.topics[name])) is not None
        and any(_set(policy.topics[name], source[name].configs, there, free))
    ]


def diff_rights(
    source: Iterable[Right], target: Collection[Right], scope: AclScope, managed: Collection[Right]
) -> tuple[list[Action], set[Right]]:
    """The actions on the target's ACLs, in order, and the ACLs that the link manages from now on.

    ``managed``: those that it managed before; it must survive restarts, otherwise ACLs that were revoked meanwhile
    remain.
    """
    wanted, have = rights_of(source, scope), set(target)
    actions = [_granted(right, "alignment.right-missing") for right in sorted(wanted - have)]
    gone = sorted(right for right in (set(managed) & have) - wanted if _concerns(right, scope))
    actions += [_granted(right, "alignment.right-revoked") for right in gone]
    return sorted(actions, key=lambda action: action.kind), have & (wanted | set(managed))


def _concerns(right: Right, scope: AclScope) -> bool:
    """Whether an ACL of the target is on a resource that the link copies."""
    names = scope.topics.values() if right.resource == "topic" else scope.groups
    return any(name == right.name or (right.pattern == "prefixed" and name.startswith(right.name)) for name in names)


def _granted(right: Right, reason: str) -> Action:
    added, allowed = reason == "alignment.right-missing", right.permission == "allow"
    kind = (
        (ChangeKind.ALLOW if allowed else ChangeKind.DENY)
        if added
        else (ChangeKind.REVOKE if allowed else ChangeKind.RELENT)
    )
    text = (
        f"{right.principal} from {right.host}: {right.permission} {right.operation} on {right.pattern} "
        f"{right.resource} {right.name}"
    )
    return Action(kind, right.name if right.resource == "topic" else "", reason, text, right=right)
