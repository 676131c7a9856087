"""What differs between a link's topics and rights and those at its target, and what would make it equal: data only.

**Partitions** only grow: a record keeps its partition's number. **Settings** of a topic are carried when they are set
on the topic itself and taken off when they were taken off there; those that decide whether what arrives stays are
carried from the cluster's defaults too, and stand before the first record: old records with short retention vanish
on arrival. Timestamps are to arrive as they are, so the target may not rewrite or refuse them.
Where an opposite link copies a topic back, its settings go one way only: from the cluster that it was made in by hand
to the one where a link made it.

**Rights** on topics and groups are carried for resources by name and by prefix. A right on every resource (``*``)
becomes one for each topic or group of the link, as at the target there are others. What allows reading is allowed there
too; what allows writing only where a link copies back, as else a copy has one writer, its link. To alter or delete is
never allowed. What is denied is denied in full. A right that goes at the source goes at the target if this link
brought it or both once had it; rights on what the link copies no longer stay as they are.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple

from trueup.state.common.patterns import matches

KEEPING = ("cleanup.policy", "max.message.bytes", "retention.bytes", "retention.ms")
"""Settings that decide whether what arrives stays, carried whoever set them at the source."""
FOREVER = str((1 << 63) - 1)
TIMES = {
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": FOREVER,
    "message.timestamp.after.max.ms": FOREVER,
}
"""Settings that a target must have so that old records arrive with their own timestamps (KIP-937)."""
READING = ("read", "describe", "describe_configs")


class Setting(NamedTuple):
    """A setting in force. ``own``: set on the topic, else the cluster's default."""

    value: str
    own: bool


class Topic(NamedTuple):
    """A topic as its cluster tells it; ``configs``: all settings in force; ``id`` "": not known."""

    partitions: int
    configs: Mapping[str, Setting]
    id: str = ""


class Right(NamedTuple):
    """One access rule, in lower case: ``resource`` topic or group, ``pattern`` literal or
    prefixed, ``permission`` allow or deny."""

    resource: str
    pattern: str
    name: str
    principal: str
    host: str
    operation: str
    permission: str


class Kind(IntEnum):
    """What is done, in the order in which it is done: no right is ever wider than at the source meanwhile."""

    CREATE = 0
    SECURE = 1  # settings without which what arrives would not stay
    GROW = 2
    SET = 3
    DENY = 4
    REVOKE = 5
    ALLOW = 6
    RELENT = 7  # take off what denies


class Action(NamedTuple):
    """One change at the target. ``configs``: new values, None for the cluster's default. ``reason``: id of a rule.

    ``first``: no record may be copied to the topic before it is done.
    """

    kind: Kind
    topic: str
    reason: str
    said: str
    partitions: int = 0
    configs: Mapping[str, str | None] = {}
    right: Right | None = None
    first: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    """How a link aligns. ``topics``: name at the source to name at the target; ``align`` and ``exclude`` as the link
    says; ``known``: settings that the target's version knows (empty: all). ``origins``: topics of the source that an
    opposite link copies back and that may have come from the target; there their settings are not touched."""

    topics: Mapping[str, str]
    align: Collection[str] = ("partitions", "configs")
    exclude: Collection[str] = ()
    known: Collection[str] = field(default_factory=frozenset)
    origins: frozenset[str] = frozenset()


def diff(source: Mapping[str, Topic], target: Mapping[str, Topic], policy: Policy) -> list[Action]:
    """What is to be done to the target's topics, in order. Topics that are not in ``source`` are left alone.

    Where several topics go into one it is created so that it keeps what comes, and then its settings are its owner's.
    """
    found: list[Action] = []
    coming: dict[str, list[str]] = {}
    for name in sorted(policy.topics.keys() & source.keys()):
        coming.setdefault(policy.topics[name], []).append(name)
    for called, names in coming.items():
        count = max(source[name].partitions for name in names)
        configs = source[names[0]].configs if len(names) == 1 else {}
        there = target.get(called)
        if there is None:
            found += _created(called, count, configs or _keeping([source[name].configs for name in names]), policy)
        else:
            found += _grown(called, count, there, policy)
            found += _set(called, configs, there, policy) if policy.origins.isdisjoint(names) else ()
    return sorted(found, key=lambda action: action.kind)


def _keeping(many: Sequence[Mapping[str, Setting]]) -> dict[str, Setting]:
    """Settings under which nothing is deleted before each of these topics would: the longest times and the largest
    sizes. Where one is compacted all is kept, as keys of different topics must not replace each other."""
    values = {name: [one[name].value for one in many if name in one] for name in KEEPING}
    compacted = any(value != "delete" for value in values.pop("cleanup.policy"))
    found = {"cleanup.policy": "delete"}
    for name, numbers in values.items():
        if numbers:
            all_of_it = name.startswith("retention") and (compacted or "-1" in numbers)
            found[name] = "-1" if all_of_it else str(max(map(int, numbers)))
    return {name: Setting(value, True) for name, value in found.items()}


def _created(topic: str, count: int, configs: Mapping[str, Setting], policy: Policy) -> Iterator[Action]:
    if "partitions" not in policy.align:
        return
    carried = {name: setting.value for name, setting in configs.items() if _carried(name, setting, policy)}
    needed = {name: value for name, value in TIMES.items() if not policy.known or name in policy.known}
    said = f"it does not exist; {count} partitions, settings of its source"
    yield Action(Kind.CREATE, topic, "alignment.topic-missing", said, count, {**carried, **needed}, first=True)


def _carried(name: str, setting: Setting, policy: Policy) -> bool:
    """Whether a setting goes to a topic that is made: what keeps records always, others where settings are aligned."""
    if matches(policy.exclude, name) or (policy.known and name not in policy.known):
        return False
    return name in KEEPING or (setting.own and "configs" in policy.align)


def _grown(topic: str, count: int, there: Topic, policy: Policy) -> Iterator[Action]:
    if count > there.partitions and "partitions" in policy.align:
        said = f"{there.partitions} partitions, {count} at the source"
        yield Action(Kind.GROW, topic, "alignment.partitions-fewer", said, count)


def _set(topic: str, configs: Mapping[str, Setting], there: Topic, policy: Policy) -> Iterator[Action]:
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
        (Kind.SECURE, "alignment.records-would-go", secure), (Kind.SET, "alignment.settings-differ", other),
    ):  # fmt: skip
        if changed:
            said = ", ".join(_change(name, there.configs[name].value, changed[name]) for name in sorted(changed))
            yield Action(kind, topic, rule, said, configs=changed, first=kind is Kind.SECURE)


def _change(name: str, before: str, after: str | None) -> str:
    return f"{name} {before} > {'the default' if after is None else after}"


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose rights a link carries. ``topics``: name at the source to name at the target; ``groups``: names;
    ``back``: a link copies these topics back; ``rename``: the link's template with the source's name filled in."""

    topics: Mapping[str, str]
    groups: Collection[str] = ()
    back: bool = False
    rename: str = "{topic}"


def rights_of(source: Iterable[Right], scope: Scope) -> set[Right]:
    """What the target is to have for these rights of the source."""
    return {right for found in source for place in _places(found, scope) for right in _operations(place, scope.back)}


def _places(right: Right, scope: Scope) -> Iterator[Right]:
    """A right where it belongs at the target; nowhere if the link copies nothing that it is about."""
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
                right._replace(name=names[name], pattern="literal") for name in sorted(names)
                if name.startswith(right.name)
            )  # fmt: skip


def _operations(right: Right, back: bool) -> Iterator[Right]:
    if right.permission == "deny":
        yield right
        return
    allowed = READING[:2] if right.resource == "group" else (*READING, *(["write"] if back else []))
    yield from (right._replace(operation=one) for one in allowed if right.operation in (one, "all"))


def disputed(source: Mapping[str, Topic], target: Mapping[str, Topic], policy: Policy) -> list[str]:
    """Topics of ``policy.origins`` whose settings differ."""
    free = replace(policy, origins=frozenset())
    return [
        name for name in sorted(policy.origins & source.keys())
        if (there := target.get(policy.topics[name])) is not None
        and any(_set(policy.topics[name], source[name].configs, there, free))
    ]  # fmt: skip


def diff_rights(
    source: Iterable[Right], target: Collection[Right], scope: Scope, carried: Collection[Right]
) -> tuple[list[Action], set[Right]]:
    """What is to be done to the target's rights, in order, and the rights that the link answers for from now on.

    ``carried``: what it answered for before, to be kept where it outlives a restart: without it rights that were
    revoked meanwhile stay.
    """
    wanted, have = rights_of(source, scope), set(target)
    found = [_granted(right, "alignment.right-missing") for right in sorted(wanted - have)]
    gone = sorted(right for right in (set(carried) & have) - wanted if _concerns(right, scope))
    found += [_granted(right, "alignment.right-revoked") for right in gone]
    return sorted(found, key=lambda action: action.kind), have & (wanted | set(carried))


def _concerns(right: Right, scope: Scope) -> bool:
    """Whether a right of the target is on something that the link copies."""
    names = scope.topics.values() if right.resource == "topic" else scope.groups
    return any(name == right.name or (right.pattern == "prefixed" and name.startswith(right.name)) for name in names)


def _granted(right: Right, reason: str) -> Action:
    added, allowed = reason == "alignment.right-missing", right.permission == "allow"
    kind = (Kind.ALLOW if allowed else Kind.DENY) if added else (Kind.REVOKE if allowed else Kind.RELENT)
    said = (
        f"{right.principal} from {right.host}: {right.permission} {right.operation} on {right.pattern} "
        f"{right.resource} {right.name}"
    )
    return Action(kind, right.name if right.resource == "topic" else "", reason, said, right=right)
