"""Rights of ACL 2.0 as links compare them, and their changes.

The words of an operation are Kafka's, so that rights are compared alike in all systems: Sub is read, Pub write, Get
describe, List describe_configs, Update alter. ``Topic:*`` is the literal name ``*``. An entry of RocketMQ is for one
resource and has several actions and addresses; one right has one of each.

Every broker has its own users and rights. Changes are made at the brokers in order and end at the first error, and
rights are read from the last broker: a change that was not made everywhere is seen as not made, and repeated.

A broker replaces the entry of a resource if there is one, and adds it otherwise, so most changes touch one entry. If a
resource needs several entries (allow and deny, different addresses), all rights of the subject are deleted and
stored again, because entries of one resource cannot be addressed; between both requests the subject has none.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from trueup.connectors.rocketmq.client import rights as acl
from trueup.connectors.rocketmq.client.cluster import RocketMqClient
from trueup.connectors.rocketmq.client.rights import Rights
from trueup.state.common.errors import Stop, TrueupError, Unknown
from trueup.state.replication.config_sync import Right

_OPERATIONS = {
    "All": "all",
    "Pub": "write",
    "Sub": "read",
    "Get": "describe",
    "List": "describe_configs",
    "Create": "create",
    "Update": "alter",
    "Delete": "delete",
}
_ACTIONS = {operation: action for action, operation in _OPERATIONS.items()}
_KINDS = {"Topic": "topic", "Group": "group"}
_ANY, _CUSTOM = "*", "Custom"
Entry = Mapping[str, Any]


class PutRights(NamedTuple):
    """A change that stores rights of a subject."""

    rights: Rights
    merge: bool
    """Whether the rights are merged by resource into those of the subject. Otherwise the subject must have none."""


class DropRights(NamedTuple):
    """A change that deletes rights of a subject."""

    resource: str
    """The resource whose entry is deleted; empty if all rights of the subject are deleted."""


def rights_of(rights: Rights) -> Iterator[Right]:
    """The rights of a subject on topics and groups. Those on other resources, and default policies, are left out."""
    for entry in _entries(rights):
        for action in entry.get("actions") or ():
            for host in entry.get("sourceIps") or (_ANY,):
                for resource, pattern, name in _places(str(entry.get("resource"))):
                    operation = _OPERATIONS.get(action, str(action).lower())
                    decision = str(entry.get("decision")).lower()
                    yield Right(resource, pattern, name, str(rights["subject"]), str(host), operation, decision)


def _entries(rights: Rights | None) -> list[Entry]:
    policies = (rights or {}).get("policies") or ()
    return [entry for policy in policies if _is_custom(policy) for entry in policy.get("entries") or ()]


def _is_custom(policy: Mapping[str, Any]) -> bool:
    return policy.get("policyType") in (None, _CUSTOM)


def _places(resource: str) -> Iterator[tuple[str, str, str]]:
    """Kind, pattern and name; a resource of every kind is one of both."""
    if resource == _ANY:
        yield from ((kind, "literal", _ANY) for kind in _KINDS.values())
    kind, _, name = resource.partition(":")
    if kind in _KINDS:
        prefixed = name.endswith(_ANY) and name != _ANY
        yield _KINDS[kind], "prefixed" if prefixed else "literal", name.removesuffix(_ANY) if prefixed else name


def resource_of(right: Right) -> str:
    """The resource of a right, as in an entry."""
    kind = next(kind for kind, resource in _KINDS.items() if resource == right.resource)
    return f"{kind}:{right.name}{_ANY if right.pattern == 'prefixed' else ''}"


def entries_of(resource: str, rights: Iterable[Right]) -> list[Entry]:
    """The entries of one resource for these rights. Raises `Stop` for an operation that RocketMQ does not have."""
    actions: dict[tuple[str, str], set[str]] = {}
    for right in rights:
        if right.operation not in _ACTIONS:
            expected = f"an operation of RocketMQ on {resource}, one of {', '.join(_ACTIONS)}"
            raise Stop(expected, right.operation, "leave acls out of align, or remove this right at the source")
        actions.setdefault((right.permission, right.host), set()).add(_ACTIONS[right.operation])
    hosts: dict[tuple[str, tuple[str, ...], bool], list[str]] = {}
    for (permission, host), some in sorted(actions.items()):
        hosts.setdefault((permission, tuple(sorted(some)), host == _ANY), []).append(host)
    return [
        {
            "resource": resource,
            "actions": [*some],
            "sourceIps": [] if anywhere else where,
            "decision": permission.title(),
        }
        for (permission, some, anywhere), where in hosts.items()
    ]


def steps(rights: Rights | None, right: Right, granted: bool) -> list[PutRights | DropRights]:
    """The changes of a subject's ``rights`` with which it has one more right, or one less."""
    resource, entries = resource_of(right), _entries(rights)
    mine = [entry for entry in entries if entry.get("resource") == resource]
    have = set(rights_of(_info(right.principal, mine)))
    new_entries = entries_of(resource, have | {right} if granted else have - {right})
    if granted == (right in have):
        return []
    if len(new_entries) == 1 and len(mine) <= 1:
        return [PutRights(_info(right.principal, new_entries), merge=True)]
    if not new_entries and len(mine) == 1:
        return [DropRights(resource)]
    kept = [policy for policy in (rights or {}).get("policies") or () if not _is_custom(policy)]
    whole = [*(entry for entry in entries if entry not in mine), *new_entries]
    policies = [*kept, *([{"policyType": _CUSTOM, "entries": whole}] if whole else [])]
    return [
        *([DropRights("")] if rights else []),
        *([PutRights(_info(right.principal, whole, kept), False)] if policies else []),
    ]


def _info(subject: str, entries: Sequence[Entry], others: Sequence[Any] = ()) -> Rights:
    own = [{"policyType": _CUSTOM, "entries": [*entries]}] if entries else []
    return {"subject": subject, "policies": [*others, *own]}


def present(client: RocketMqClient, broker: str) -> list[Right]:
    """The rights on topics and groups on one broker, sorted. Raises `NoRights` if it has no ACL."""
    return sorted(right for rights in acl.rights(client, broker).values() for right in rights_of(rights))


def change(client: RocketMqClient, brokers: Iterable[str], right: Right, granted: bool) -> None:
    """Grant a right, or revoke it, on these brokers in order, up to the first error."""
    for broker in brokers:
        done = list[PutRights | DropRights]()
        for step in steps(acl.rights(client, broker).get(right.principal), right, granted):
            _make(client, broker, right.principal, step, after=done)
            done.append(step)


def _make(
    client: RocketMqClient,
    broker: str,
    subject: str,
    step: PutRights | DropRights,
    after: Sequence[PutRights | DropRights],
) -> None:
    if isinstance(step, DropRights):
        acl.drop_rights(client, broker, subject, step.resource)
        return
    try:
        acl.put_rights(client, broker, step.rights, step.merge)
    except TrueupError as error:
        if not after:
            raise
        todo = f"the rights of {subject} on {broker} were deleted; store them: {json.dumps(step.rights)}"
        raise Unknown(error.expected, error.found, todo) from error
