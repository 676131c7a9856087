"""Topics, rights and ids as links compare them, without a cluster."""

from typing import Any

import pytest

from trueup.connectors.contract import LogId
from trueup.connectors.rocketmq.client.topics import RocketMqTopic
from trueup.connectors.rocketmq.replication.identity import agreed
from trueup.connectors.rocketmq.replication.rights import DropRights, PutRights, entries_of, rights_of, steps
from trueup.connectors.rocketmq.replication.topics import KNOWN, changed, grown, on_each, settings_of, state_of
from trueup.state.common.errors import Stop
from trueup.state.replication.config_sync import AlignmentPolicy, ChangeKind, Right, Setting, diff
from trueup.state.replication.config_sync import TopicConfigs as Compared

FIFO = {"message.type": "FIFO"}
READ = Right("topic", "literal", "orders", "User:link", "*", "read", "allow")


def entry(resource: str, actions: str, *ips: str, decision: str = "Allow") -> dict[str, Any]:
    return {"resource": resource, "actions": actions.split(), "sourceIps": list(ips), "decision": decision}


def acl(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"subject": "User:link", "policies": [{"policyType": "Custom", "entries": list(entries)}]}


def kinds(source: RocketMqTopic, target: RocketMqTopic | None) -> list[tuple[ChangeKind, Any]]:
    """The actions that make a topic of one broker equal to one of another."""
    there = {} if target is None else {"t": Compared(target.read, settings_of({"there": target}))}
    found = diff(
        {"t": Compared(source.read, settings_of({"here": source}))}, there, AlignmentPolicy({"t": "t"}, known=KNOWN)
    )
    return [(action.kind, action.partitions or action.configs) for action in found]


def test_queues_are_in_the_order_of_brokers_and_numbers() -> None:
    found = state_of("t", {"b": RocketMqTopic("t", 1, 1), "a": RocketMqTopic("t", 2, 1)})
    assert found.logs == (LogId("t", 0, "a"), LogId("t", 1, "a"), LogId("t", 0, "b"))


@pytest.mark.parametrize(
    ("attribute", "value", "what"),
    [("message.type", "LITE", "its lite topics"), ("cleanup.policy", "COMPACTION", "what was compacted")],
)
def test_a_topic_that_cannot_be_copied_whole_is_refused_and_has_no_queues_to_copy(
    attribute: str, value: str, what: str
) -> None:
    """Also if only one of its brokers says so."""
    parts = {"a": RocketMqTopic("t", 1, 1), "b": RocketMqTopic("t", 1, 1, attributes={attribute: value})}
    found = state_of("t", parts)
    expected = f"{attribute} {value}: {what} cannot be copied; exclude it from the link"
    assert (found.logs, found.error) == ((), expected)


def test_settings_are_shown_with_their_defaults() -> None:
    assert settings_of({"a": RocketMqTopic("t", 4, 2, attributes={"reserve.time": "9"})}) == {
        "perm": Setting("6", False),
        "order": Setting("false", False),
        "attributes.message.type": Setting("NORMAL", False),
        "attributes.reserve.time": Setting("9", True),
        "queues.a": Setting("4 to read, 2 to write", False),
    }


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (
            RocketMqTopic("t", 4, 4, attributes=FIFO),
            RocketMqTopic("t", 4, 4),
            [(ChangeKind.SET, {"attributes.message.type": "FIFO"})],
        ),
        (
            RocketMqTopic("t", 4, 4),
            RocketMqTopic("t", 4, 4, attributes=FIFO),
            [(ChangeKind.SET, {"attributes.message.type": None})],
        ),
        (RocketMqTopic("t", 4, 4, ordered=True), RocketMqTopic("t", 4, 4), [(ChangeKind.SET, {"order": "true"})]),
        (RocketMqTopic("t", 4, 4, permissions=2), RocketMqTopic("t", 4, 4), [(ChangeKind.SET, {"perm": "2"})]),
        (RocketMqTopic("t", 4, 4, permissions=4), RocketMqTopic("t", 4, 4), []),
        (RocketMqTopic("t", 8, 8), RocketMqTopic("t", 4, 4), [(ChangeKind.GROW, 8)]),
        (RocketMqTopic("t", 4, 4), RocketMqTopic("t", 8, 8), []),
    ],
)
def test_a_copy_gets_what_its_source_has_and_stays_writable(
    source: RocketMqTopic, target: RocketMqTopic, expected: Any
) -> None:
    assert kinds(source, target) == expected


def test_a_new_topic_gets_only_settings_of_rocketmq() -> None:
    kafka = {"cleanup.policy": Setting("compact", True), "retention.ms": Setting("1", True)}
    [action] = diff({"t": Compared(3, kafka)}, {}, AlignmentPolicy({"t": "t"}, known=KNOWN))
    assert (action.kind, action.configs) == (ChangeKind.CREATE, {})


@pytest.mark.parametrize(
    ("configs", "wanted", "removed"),
    [
        ({"perm": "2"}, RocketMqTopic("t", 4, 4, 2), []),
        ({"perm": None}, RocketMqTopic("t", 4, 4, 6), []),
        ({"order": "true"}, RocketMqTopic("t", 4, 4, ordered=True), []),
        ({"attributes.message.type": "DELAY"}, RocketMqTopic("t", 4, 4, attributes={"message.type": "DELAY"}), []),
        ({"attributes.message.type": None}, RocketMqTopic("t", 4, 4), ["message.type"]),
        ({"attributes.reserve.time": None}, RocketMqTopic("t", 4, 4), []),
    ],
)
def test_only_what_changes_is_sent(configs: dict[str, str | None], wanted: RocketMqTopic, removed: list[str]) -> None:
    assert changed(RocketMqTopic("t", 4, 4, attributes=FIFO), configs) == (wanted, removed)


def test_a_topic_that_links_may_not_write_stays_so() -> None:
    assert changed(RocketMqTopic("t", 4, 4, permissions=4), {"perm": "6"})[0].permissions == 4


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        (RocketMqTopic("t", 4, 4, attributes=FIFO), RocketMqTopic("t", 6, 6)),
        (RocketMqTopic("t", 8, 4), RocketMqTopic("t", 8, 6)),
        (RocketMqTopic("t", 6, 6), None),
    ],
)
def test_queues_are_added_and_never_removed(topic: RocketMqTopic, expected: RocketMqTopic | None) -> None:
    assert grown(topic, 6) == expected


@pytest.mark.parametrize(("logs", "brokers", "each"), [(4, 1, 4), (4, 2, 2), (5, 2, 3), (1, 3, 1)])
def test_brokers_share_the_queues_of_a_topic(logs: int, brokers: int, each: int) -> None:
    assert on_each(logs, brokers) == each


def test_an_entry_is_a_right_for_each_action_and_address() -> None:
    found = set(rights_of(acl(entry("Topic:ord*", "Pub Get", "10.0.0.1", "10.0.0.2", decision="Deny"))))
    assert found == {
        Right("topic", "prefixed", "ord", "User:link", f"10.0.0.{host}", operation, "deny")
        for host in (1, 2)
        for operation in ("write", "describe")
    }


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        ("Topic:*", [("topic", "literal", "*")]),
        ("Group:g", [("group", "literal", "g")]),
        ("Cluster:*", []),
        ("*", [("topic", "literal", "*"), ("group", "literal", "*")]),
    ],
)
def test_resources_are_topics_and_groups(resource: str, expected: list[tuple[str, str, str]]) -> None:
    assert [right[:3] for right in rights_of(acl(entry(resource, "Get")))] == expected


def test_default_policies_are_not_rights_of_links() -> None:
    info = {"subject": "User:link", "policies": [{"policyType": "Default", "entries": [entry("Topic:t", "Pub")]}]}
    assert list(rights_of(info)) == []


def test_entries_give_the_same_rights_back() -> None:
    every = {
        READ,
        READ._replace(operation="write", host="10.0.0.1"),
        READ._replace(permission="deny", operation="all"),
        READ._replace(operation="describe"),
        READ._replace(operation="write", host="10.0.0.2"),
    }
    entries = entries_of("Topic:orders", every)
    assert (set(rights_of(acl(*map(dict, entries)))), len(entries)) == (every, 3)


def test_an_operation_of_another_system_is_refused_by_name() -> None:
    with pytest.raises(Stop, match="alter_configs"):
        entries_of("Topic:orders", [READ._replace(operation="alter_configs")])


def put(*entries: dict[str, Any], merge: bool) -> PutRights:
    return PutRights(acl(*entries), merge)


@pytest.mark.parametrize(
    ("found", "granted", "expected"),
    [
        (None, True, [put(entry("Topic:orders", "Sub"), merge=True)]),
        (acl(entry("Topic:orders", "Get")), True, [put(entry("Topic:orders", "Get Sub"), merge=True)]),
        (acl(entry("Topic:orders", "Sub")), True, []),
        (acl(entry("Topic:orders", "Get Sub")), False, [put(entry("Topic:orders", "Get"), merge=True)]),
        (acl(entry("Topic:orders", "Sub"), entry("Topic:b", "Sub")), False, [DropRights("Topic:orders")]),
        (acl(entry("Topic:b", "Sub")), False, []),
        (None, False, []),
        (
            acl(entry("Topic:b", "Pub"), entry("Topic:orders", "Pub", "10.0.0.1")),
            True,
            [
                DropRights(""),
                put(
                    entry("Topic:b", "Pub"),
                    entry("Topic:orders", "Sub"),
                    entry("Topic:orders", "Pub", "10.0.0.1"),
                    merge=False,
                ),
            ],
        ),
    ],
)
def test_other_rights_of_a_user_stay(found: dict[str, Any] | None, granted: bool, expected: list[Any]) -> None:
    made = steps(found, READ, granted)
    assert [_sorted(step) for step in made] == [_sorted(step) for step in expected]


def _sorted(step: PutRights | DropRights) -> Any:
    """A step without the order of its entries."""
    if isinstance(step, DropRights):
        return step
    return step.merge, sorted(str(one) for policy in step.rights["policies"] for one in policy["entries"])


def test_brokers_of_two_clusters_are_named_with_their_ids() -> None:
    with pytest.raises(Stop, match="1 on a and c, 2 on b"):
        agreed("hangzhou", {"c": {"1"}, "b": {"2"}, "a": {"1"}, "d": set()})


@pytest.mark.parametrize(("planted", "expected"), [({"a": {"1"}, "b": set()}, "1"), ({"a": set()}, "")])
def test_one_id_holds_for_all_brokers(planted: dict[str, set[str]], expected: str) -> None:
    assert agreed("hangzhou", planted) == expected
