"""Differences between two real clusters are detected and applied in order. Every rejection is reported."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.integration.replication.mirror import Side, sides
from trueup.connectors.contract import Endpoint, LogId
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.kafka.client.admin import Admin
from trueup.connectors.kafka.client.metadata import Discovery
from trueup.connectors.kafka.replication.admin import KafkaAdmin
from trueup.connectors.replication.config_sync import Alignment, Outcome
from trueup.state.replication.config_sync import AclScope, Action, AlignmentPolicy, ChangeKind, Right, diff, diff_rights

pytestmark = pytest.mark.servers

SHORT = {"log.retention.ms": 1_000, "log.retention.check.interval.ms": 300, "log.initial.task.delay.ms": 300}
YEAR_2020_MS = 1_577_836_800_000


@pytest.fixture(scope="module")
def both(new_root: Callable[[], Path]) -> Iterator[tuple[Side, Side]]:
    with sides(new_root(), SHORT) as found:
        yield found


def align(both: tuple[Side, Side], *topics: str, **more: object) -> list[Outcome]:
    """One pass over topics with the same name on both sides."""
    alignment = Alignment(*(side.cluster for side in both))
    called = {topic: topic for topic in topics}
    seen = alignment.look(called)
    return alignment.apply(diff(seen.source, seen.target, AlignmentPolicy(called, known=alignment.known(), **more)))  # type: ignore[arg-type]


def value(side: Side, topic: str, name: str) -> tuple[str, bool]:
    setting = side.discovery.topics([topic])[topic].configs[name]
    return setting.value, setting.own


def allow(operation: str, name: str, pattern: str = "literal", resource: str = "topic", user: str = "link") -> Right:
    return Right(resource, pattern, name, f"User:{user}", "*", operation, "allow")


def test_a_topic_is_made_with_all_that_keeps_its_records(both: tuple[Side, Side]) -> None:
    east, west = both
    east.create("made", 3, retention_ms="-1", cleanup_policy="compact,delete")
    align(both, "made")
    wait_until(lambda: west.discovery.topics(["made"]), 180.0, "the new topic to be known")
    made = west.discovery.topics(["made"])["made"]
    assert (len(made.leaders), made.configs["retention.ms"].value, made.configs["message.timestamp.type"].value) == (
        3,
        "-1",
        "CreateTime",
    )


def test_old_records_outlive_the_short_retention_of_the_target(both: tuple[Side, Side]) -> None:
    east, west = both
    for topic in ("old", "lost"):
        east.create(topic, 1, retention_ms="-1")
    align(both, "old")
    west.create("lost")
    writer = Producer({"bootstrap.servers": west.endpoint.address})
    for topic in ("old", "lost"):
        writer.produce(topic, b"x", partition=0, timestamp=YEAR_2020_MS)
    writer.flush()
    places = [LogId("old", 0), LogId("lost", 0)]
    west_logs = west.discovery.logs
    wait_until(lambda: west_logs(places)[places[1]].start == 1, 180.0, "the record of a topic with defaults to vanish")
    assert west_logs(places)[places[0]].start == 0


def test_partitions_grow(both: tuple[Side, Side]) -> None:
    for side, partitions in zip(both, (4, 2), strict=True):
        side.create("grows", partitions)
    results = [outcome.result for outcome in align(both, "grows", align=["partitions"])]
    wait_until(lambda: len(both[1].discovery.topics(["grows"])["grows"].leaders) == 4, 180.0, "four partitions")
    assert results == ["done"]


def test_settings_are_set_and_taken_off(both: tuple[Side, Side]) -> None:
    east, west = both
    east.create("set", 1, segment_ms="7000000")
    west.create("set", 1, segment_bytes="20000000")
    outcomes = align(both, "set")
    wait_until(lambda: not value(west, "set", "segment.bytes")[1], 180.0, "the setting to be the default")
    assert ({outcome.result for outcome in outcomes}, value(west, "set", "segment.ms")) == ({"done"}, ("7000000", True))


def test_a_second_pass_finds_nothing(both: tuple[Side, Side]) -> None:
    both[0].create("calm", 2, retention_ms="86400000")
    align(both, "calm")
    wait_until(lambda: both[1].discovery.topics(["calm"]), 180.0, "the new topic to be known")
    assert align(both, "calm") == []


def test_an_action_done_twice_changes_nothing(both: tuple[Side, Side]) -> None:
    east, west = both
    west.create("again", 2)
    alignment = Alignment(east.cluster, west.cluster)
    actions = [
        Action(ChangeKind.GROW, "again", "", "", 2),
        Action(ChangeKind.SET, "again", "", "", configs={"retention.ms": "5000", "segment.ms": None}),
        Action(ChangeKind.ALLOW, "again", "", "", right=allow("read", "again")),
    ]
    assert [outcome.result for _ in range(2) for outcome in alignment.apply(actions)] == ["done"] * 6


def test_a_refusal_of_the_broker_is_reported_and_blocks_nothing_else(both: tuple[Side, Side]) -> None:
    east, west = both
    for topic in ("good", "bad"):
        west.create(topic)
    actions = [
        Action(ChangeKind.CREATE, "no such name!", "", "", 1),
        Action(ChangeKind.SET, "bad", "", "", configs={"retention.ms": "soon"}),
        Action(ChangeKind.SET, "good", "", "", configs={"retention.ms": "60000"}),
    ]
    outcomes = Alignment(east.cluster, west.cluster).apply(actions)
    assert [outcome.result for outcome in outcomes] == ["refused", "refused", "done"]
    assert "soon" in outcomes[1].detail


def test_what_cannot_be_read_is_not_taken_for_missing(both: tuple[Side, Side]) -> None:
    east, west = both
    for side in both:
        side.create("hidden")
    options = west.broker.client("SASL_PLAINTEXT", "guest")
    with Admin(Endpoint("west", options.pop("bootstrap.servers"), 1, options)) as guest:
        seen = Alignment(east.cluster, KafkaAdmin(guest.endpoint, Discovery(guest.endpoint, guest))).look(
            {"hidden": "hidden"}
        )
        assert (dict(seen.source), "TOPIC_AUTHORIZATION_FAILED" in seen.problems["hidden"]) == ({}, True)


def pass_rights(both: tuple[Side, Side], scope: AclScope, carried: set[Right]) -> tuple[list[Outcome], set[Right]]:
    alignment = Alignment(*(side.cluster for side in both))
    actions, answers_for = diff_rights(*alignment.rights(), scope, carried)
    return alignment.apply(actions), answers_for


def test_rights_follow_by_name_by_prefix_and_of_groups_and_go_when_revoked(both: tuple[Side, Side]) -> None:
    east, west = both
    alignment = Alignment(west.cluster, east.cluster)
    rights = [
        allow("read", "pay"),
        allow("read", "pa", "prefixed"),
        allow("read", "payers", resource="group"),
        Right("topic", "literal", "pay", "User:guest", "*", "read", "deny"),
    ]
    alignment.apply([Action(ChangeKind.ALLOW, "", "", "", right=right) for right in rights])
    scope = AclScope({"pay": "pay"}, ["payers"])
    wait_until(lambda: set(rights) <= set(alignment.rights()[1]), 180.0, "the source's rights")
    pass_rights(both, scope, set())
    wait_until(lambda: set(rights) <= set(alignment.rights()[0]), 180.0, "the target to have them")
    _, carried = pass_rights(both, scope, set())
    alignment.apply(
        [Action(ChangeKind.REVOKE, "", "", "", right=rights[1]), Action(ChangeKind.RELENT, "", "", "", right=rights[3])]
    )
    wait_until(lambda: rights[3] not in alignment.rights()[1], 180.0, "the source to have revoked")
    outcomes, _ = pass_rights(both, scope, carried)
    wait_until(lambda: rights[3] not in alignment.rights()[0], 180.0, "the target to have revoked")
    left = set(alignment.rights()[0])
    assert ([o.result for o in outcomes], set(rights) & left) == (["done", "done"], {rights[0], rights[2]})


def test_nothing_is_allowed_while_something_could_not_be_denied(both: tuple[Side, Side]) -> None:
    east, west = both
    nobody = Right("topic", "literal", "gate", "nobody", "*", "read", "deny")
    actions = [
        Action(ChangeKind.DENY, "gate", "", "", right=nobody),
        Action(ChangeKind.ALLOW, "gate", "", "", right=allow("read", "gate")),
    ]
    outcomes = Alignment(east.cluster, west.cluster).apply(actions)
    assert [outcome.result for outcome in outcomes] == ["refused", "skipped"]
