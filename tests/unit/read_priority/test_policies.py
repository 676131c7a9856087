"""The priority in force, and policies whose credentials stay and are shown nowhere."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup.connectors.pulsar.admin.policies import FIELD, OffloadPolicy, policy_of
from trueup.state.common.errors import Stop
from trueup.state.read_priority.policies import (
    BrokerFacts,
    Contradiction,
    InForce,
    Level,
    PolicyView,
    Version,
    in_force,
    parsed_version,
)
from trueup.state.read_priority.tiers import ReadPriority

FIRST, LAST = ReadPriority.BOOKKEEPER_FIRST, ReadPriority.TIERED_STORAGE_FIRST
NEW, OLD, OLDEST = (4, 2, 4), (4, 0, 4), (2, 8, 3)
NONE, OBJECT = PolicyView(), PolicyView(True)
RAW = {
    "managedLedgerOffloadDriver": "S3",
    "s3ManagedLedgerOffloadCredentialId": "AKIA",
    "unknownField": {"a": [1, None]},
    "s3ManagedLedgerOffloadCredentialSecret": "hidden",
    "managedLedgerExtraConfigurations": {"password": "hidden2"},
    FIELD: "BOOKKEEPER_FIRST",
}


def own(priority: ReadPriority | None) -> PolicyView:
    return PolicyView(True, priority)


@pytest.mark.parametrize(
    ("version", "broker", "namespace", "topic", "expected", "origin", "masked"),
    [
        (NEW, FIRST, NONE, NONE, FIRST, Level.BROKER, ()),
        (NEW, None, NONE, NONE, LAST, Level.BROKER, ()),
        (NEW, FIRST, OBJECT, NONE, FIRST, Level.BROKER, ()),
        (NEW, FIRST, own(LAST), NONE, LAST, Level.NAMESPACE, (Level.BROKER,)),
        (NEW, FIRST, own(LAST), own(FIRST), FIRST, Level.TOPIC, (Level.NAMESPACE,)),
        (NEW, FIRST, own(FIRST), own(LAST), LAST, Level.TOPIC, (Level.NAMESPACE, Level.BROKER)),
        (OLD, FIRST, OBJECT, NONE, LAST, Level.NAMESPACE, (Level.BROKER,)),
        (OLD, FIRST, own(FIRST), OBJECT, LAST, Level.TOPIC, (Level.NAMESPACE, Level.BROKER)),
        (OLDEST, FIRST, NONE, NONE, LAST, Level.BROKER, ()),
    ],
)
def test_the_strongest_level_with_a_value_is_in_force(
    version: Version,
    broker: ReadPriority | None,
    namespace: PolicyView,
    topic: PolicyView,
    expected: ReadPriority,
    origin: Level,
    masked: tuple[Level, ...],
) -> None:
    found = in_force([BrokerFacts("b", version, broker)], namespace, topic, None)
    assert isinstance(found, InForce)
    assert (found.priority, found.origin, found.masked) == (expected, origin, masked)


def test_the_default_of_a_policy_object_is_named_as_the_reason() -> None:
    found = in_force([BrokerFacts("b", OLD, FIRST)], OBJECT, NONE, None)
    assert isinstance(found, InForce)
    assert "PR 24151" in found.why


@pytest.mark.parametrize(
    ("brokers", "applied"),
    [
        ([], None),
        ([BrokerFacts("a", NEW, FIRST), BrokerFacts("b", NEW, LAST)], None),
        ([BrokerFacts("a", NEW, FIRST)], own(LAST)),
    ],
)
def test_what_contradicts_itself_is_not_in_force(brokers: list[BrokerFacts], applied: PolicyView | None) -> None:
    assert isinstance(in_force(brokers, NONE, NONE, applied), Contradiction)


def test_brokers_that_differ_do_not_matter_where_a_policy_decides() -> None:
    brokers = [BrokerFacts("a", NEW, FIRST), BrokerFacts("b", NEW, LAST)]
    assert isinstance(in_force(brokers, own(FIRST), NONE, own(FIRST)), InForce)


@pytest.mark.parametrize(
    ("text", "expected"), [("4.2.4", NEW), ('"4.2.4"', NEW), ("3.0.0-SNAPSHOT", (3, 0, 0)), ("?", (0, 0, 0))]
)
def test_versions_are_read(text: str, expected: Version) -> None:
    assert parsed_version(text) == expected


def test_only_the_priority_changes_and_the_enum_is_written_by_name() -> None:
    assert OffloadPolicy(RAW).with_priority(LAST).body() == {**RAW, FIELD: "TIERED_STORAGE_FIRST"}


@given(
    st.dictionaries(st.text(max_size=20), st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5))
)
def test_every_other_field_survives(raw: dict[str, Any]) -> None:
    changed = OffloadPolicy(raw).with_priority(FIRST)
    assert changed.body() == {**raw, FIELD: "BOOKKEEPER_FIRST"}
    assert changed.keeps(OffloadPolicy(raw))


def test_no_text_of_a_policy_shows_a_credential() -> None:
    policy = OffloadPolicy(RAW)
    assert [word for word in ("hidden", "AKIA") if word in f"{policy!r} {policy} {policy.view()}"] == []


def test_credentials_are_not_copied_to_a_new_policy() -> None:
    body = OffloadPolicy(RAW).without_secrets().body()
    assert set(body) == {"managedLedgerOffloadDriver", "unknownField", FIELD}


def test_the_secrets_of_a_policy_are_known() -> None:
    assert OffloadPolicy(RAW).secrets() == ["AKIA", "hidden", "hidden2"]


def test_a_changed_field_changes_the_digest_and_a_changed_credential_only_one_of_them() -> None:
    view = OffloadPolicy(RAW).view()
    other = OffloadPolicy({**RAW, "s3ManagedLedgerOffloadCredentialSecret": "other"}).view()
    assert (other.digest != view.digest, other.plain == view.plain) == (True, True)
    assert OffloadPolicy({**RAW, "unknownField": 1}).view().plain != view.plain


@pytest.mark.parametrize("field", [{FIELD: "bookkeeper-first"}, {FIELD: 3}])
def test_an_unknown_value_is_an_error(field: dict[str, Any]) -> None:
    with pytest.raises(Stop):
        OffloadPolicy(field).view()


@pytest.mark.parametrize("found", [[], "text", 3])
def test_a_response_of_another_kind_is_no_policy(found: Any) -> None:
    with pytest.raises(Stop):
        policy_of(found, "a/b")


def test_no_content_is_no_policy() -> None:
    assert policy_of(None, "a/b").view() == PolicyView()
