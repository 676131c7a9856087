"""Whose a name is, by Pulsar's rules; integration/topic_reader/test_pulsars_names.py compares them with its classes."""

import pytest

from trueup.connectors.pulsar.partitioned import Partitioned, ReadableTopics, choice
from trueup.connectors.pulsar.topics import PulsarTopic, of_service, topic_of
from trueup.state.common.errors import Stop

PLAIN = (
    "a-partition-01",
    "a-partition-20260101120000",
    "a-partition-0-sub-COPY",
    "a-partition-x",
    "a-partition-+1",
    "a-partition--1",
    "a-partition-2147483648",
    "a-partition-",
    "-partition-3",
    "a",
)
"""Names of topics that are no partitions."""
OURS = ("__change_events", "__change_events-partition-3", "__transaction_buffer_snapshot", "a__transaction_pending_ack")
OF_USERS = (
    "my__change_events",
    "__change_events-2",
    "__transaction_history",
    "__healthcheck",
    "__load_balancer_stats",
    "__transaction_pending_ack_log",
    "__transaction_log_3",
)


def topic(local: str) -> PulsarTopic:
    return PulsarTopic("t", "ns", local)


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("a", "public/default/persistent/a"),
        ("t/ns/a", "t/ns/persistent/a"),
        ("persistent://t/ns/a-partition-3", "t/ns/persistent/a-partition-3"),
        ("t/ns/a b:ü~*", "t/ns/persistent/a+b%3A%C3%BC%7E*"),
    ],
)
def test_a_topic_has_the_managed_ledger_that_pulsar_gives_it(name: str, owner: str) -> None:
    assert topic_of(name).owner == owner


@pytest.mark.parametrize(
    "name",
    ["", "t/a", "non-persistent://t/ns/a", "persistent://a", "t//a", "t n/ns/a", "t/ns/ ", "persistent://t/c/ns/a"],
)
def test_an_invalid_name_of_a_topic_is_refused(name: str) -> None:
    with pytest.raises(Stop):
        topic_of(name)


@pytest.mark.parametrize("local", PLAIN)
def test_a_name_that_looks_like_a_partition_is_a_topic_of_its_own(local: str) -> None:
    assert (topic(local).partition, topic(local).whole, topic(local).schema) == (
        -1,
        topic(local),
        f"t/ns/{topic(local).owner.rpartition('/')[2]}",
    )


@pytest.mark.parametrize(
    ("local", "partition", "whole"),
    [
        ("a-partition-3", 3, "a"),
        ("a-partition-0-partition-1", 1, "a-partition-0"),
        ("a-partition-2147483647", 2147483647, "a"),
        ("a-partition-\u0663", 3, "a"),
    ],
)
def test_a_partition_shares_its_schema_with_the_whole_topic(local: str, partition: int, whole: str) -> None:
    assert (topic(local).partition, topic(local).whole, topic(local).schema) == (
        partition,
        topic(whole),
        f"t/ns/{whole}",
    )


@pytest.mark.parametrize("local", OURS)
def test_topics_of_pulsar_itself_are_system_topics(local: str) -> None:
    assert topic(local).system


@pytest.mark.parametrize("local", ["transaction_coordinator_assign-partition-0", "__transaction_log_3"])
def test_topics_of_the_coordinator_are_system_topics_in_its_namespace(local: str) -> None:
    assert PulsarTopic("pulsar", "system", local).system


@pytest.mark.parametrize("local", OF_USERS)
def test_topics_of_users_may_have_names_like_them(local: str) -> None:
    assert not topic(local).system


SERVICES = {
    "pulsar/system": True,
    "pulsar/broker-1:8080": True,
    "sla-monitor/10.0.0.1:8080": True,
    "pulsar/orders": False,
    "pulsar/system2": False,
    "t/broker:8080": False,
    "pulsar/broker:80a": False,
}


def test_namespaces_of_brokers_are_known() -> None:
    assert {name: of_service(name) for name in SERVICES} == SERVICES


def chosen(found: str, counts: dict[str, int | None], known: bool = True) -> tuple[str, str]:
    """What clients read, and what is not decided."""
    of = Partitioned({topic(local): count for local, count in counts.items()}, known)
    made = choice([topic(local) for local in found.split()], of)
    return " ".join(one.local for one in made.read), " ".join(one.local for one in made.doubtful)


BOTH = "a a-partition-0 a-partition-1"


@pytest.mark.parametrize(
    ("found", "counts", "read"),
    [
        (BOTH, {"a": 2}, "a-partition-0 a-partition-1"),
        (BOTH, {"a": 1}, "a-partition-0"),
        (BOTH, {}, BOTH),
        (BOTH, {"a": 0}, BOTH),
        ("a-partition-7 b", {"b": 3}, "a-partition-7"),
        ("a-partition-0 a-partition-0-partition-0", {"a": 1, "a-partition-0": 1}, "a-partition-0-partition-0"),
    ],
)
def test_clients_read_the_partitions_of_a_partitioned_topic_and_otherwise_each_topic(
    found: str, counts: dict[str, int | None], read: str
) -> None:
    assert chosen(found, counts) == (read, "")


@pytest.mark.parametrize(("counts", "known"), [({}, False), ({"a": None}, True)])
def test_a_name_with_both_forms_is_not_decided_if_the_number_of_partitions_is_not_known(
    counts: dict[str, int | None], known: bool
) -> None:
    assert chosen(f"{BOTH} b", counts, known) == ("a-partition-0 a-partition-1 b", "a")
    assert choice([topic("a")], Partitioned({topic("a"): None})) == ReadableTopics([topic("a")], [])


@pytest.mark.parametrize(("count", "name"), [(0, "a-partition-3"), (4, "a"), (None, "a")])
def test_policies_are_those_of_the_partitioned_topic_if_there_is_one(count: int | None, name: str) -> None:
    assert Partitioned({topic("a"): count}).named(topic("a-partition-3")) == topic(name)
