"""Two clusters as others leave them: purged topics, rights that are taken away, renames both ways, groups left behind.
What is shown is carried out, as an operator would."""

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.e2e.trueup import Trueup
from tests.replication.groups import commit_offset, committed_offset
from tests.replication.pair import QUICK, Pair
from tests.replication.reading import committed
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.embedded.processes import wait_until

pytestmark = [pytest.mark.servers, pytest.mark.release]
ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
PURGED, SECRET, BEHIND, BEATS = "purged", "secret", "behind", "ren-beats"
PAIR = ("there", "back")
PREFIXED = "{source}.{topic}"
STOP_S = 60.0
"""Time after which a link must show that a right was taken away."""
MOST = 4
"""Commands that are enough for two links of one topic."""


class Guarded(Pair):
    """Two clusters with an authorizer."""

    def broker(self, root: Path) -> Kafka:
        return Kafka(root, settings={**QUICK, **ACLS})


@pytest.fixture(scope="module")
def clusters(new_root: Callable[[], Path]) -> Iterator[dict[str, Kafka]]:
    with Guarded(new_root) as pair:
        found = {"east": pair.east, "west": pair.west}
        for broker in found.values():
            create(broker, PURGED)
        create(pair.east, SECRET, BEHIND, "ren-a")
        create(pair.west, "ren-b")
        write(pair.east, SECRET, range(10))
        fall_behind(pair.east)
        yield found


@pytest.fixture(scope="module", autouse=True)
def trueup(clusters: dict[str, Kafka], new_root: Callable[[], Path]) -> Iterator[Trueup]:
    there, back = {"source": "east", "target": "west"}, {"source": "west", "target": "east"}
    common = {"mode": "enforce", "lease_s": 2, "heartbeat_s": 1}
    renaming = {**common, "rename": PREFIXED, "topics": [r"/(?:east\.|west\.)*ren-.*/"], "heartbeat_topic": BEATS}
    links: dict[str, dict[str, object]] = {
        "there": {**there, **common, "topics": [PURGED]},
        "back": {**back, **common, "topics": [PURGED]},
        "guarded": {**there, **common, "topics": [SECRET, BEHIND], "groups": ["readers"]},
        "absent": {**there, "topics": ["nowhere"]},
        "renamed": {**there, **renaming},
        "renamed-back": {**back, **renaming},
    }
    bits = {"east": 0, "west": 1}
    kafka = {name: {"bootstrap": broker.bootstrap, "bit": bits[name]} for name, broker in clusters.items()}
    with Trueup(None, new_root(), kafka=kafka, links=links) as made:
        made.start()
        yield made


def admin(broker: Kafka) -> AdminClient:
    """A client. The caller keeps it until its futures complete: a garbage-collected client fails them."""
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def create(broker: Kafka, *topics: str) -> None:
    client = admin(broker)
    made = [NewTopic(topic, 1, 1, config={"retention.ms": "-1"}) for topic in topics]
    for future in client.create_topics(made).values():
        future.result(30)
    wait_until(lambda: {*topics} <= names(broker), 60.0, f"{', '.join(topics)} to be there")


def names(broker: Kafka) -> set[str]:
    return set(admin(broker).list_topics(timeout=30).topics)


def write(broker: Kafka, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for number in numbers:
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(60) == 0


def fall_behind(east: Kafka) -> None:
    """A group is at 10, and retention deleted everything before 60."""
    client = admin(east)
    for start in range(0, 100, 20):  # a fetch returns whole batches, also those of which a part was deleted
        write(east, BEHIND, range(start, start + 20))
    commit_offset(east.bootstrap, "readers", BEHIND, 10)
    for future in client.delete_records([TopicPartition(BEHIND, 0, 60)]).values():
        future.result(60)


def values(broker: Kafka, topic: str) -> list[int]:
    return sorted(int(message.value() or b"-1") for message in committed(broker.bootstrap, topic, [0]))


def link(trueup: Trueup, name: str) -> dict[str, Any]:
    found: dict[str, Any] = trueup.api(f"links/{name}")
    return found


def recreate(clusters: dict[str, Kafka], topic: str) -> None:
    """Delete the topic on both sides, then create it where a link has not done so."""
    for broker in clusters.values():
        client = admin(broker)
        client.delete_topics([topic])[topic].result(30)
    for broker in clusters.values():
        wait_until(lambda broker=broker: made(broker, topic), 60.0, "the topic anew")


def made(broker: Kafka, topic: str) -> bool:
    if topic not in names(broker):
        create(broker, topic)
    return True


def follow(trueup: Trueup) -> list[str]:
    """Execute the recommended commands as they are shown. Returns them."""
    done: list[str] = []
    while shown := [way for name in PAIR for way in link(trueup, name)["ways"] if way["recommended"]]:
        assert len(done) < MOST, (done, shown)
        result = trueup.run(*shlex.split(shown[0]["command"])[1:])
        assert result.code == 0, (shown[0], result, trueup.diagnostics())
        done.append(shown[0]["command"])
    return done


def test_a_topic_that_was_purged_on_both_sides_is_copied_again_by_the_shown_commands(
    trueup: Trueup, clusters: dict[str, Kafka]
) -> None:
    for numbers, broker in zip((range(50), range(50, 100)), clusters.values(), strict=True):
        write(broker, PURGED, numbers)
    for broker in clusters.values():
        trueup.until("all records", lambda broker=broker: values(broker, PURGED) == [*range(100)])
    recreate(clusters, PURGED)
    trueup.until("both links to stop", lambda: all(link(trueup, name)["state"] == "stopped" for name in PAIR))
    trueup.until("what to do", lambda: all(link(trueup, name)["ways"] for name in PAIR))
    planned = [row["evidence"]["command"] for row in trueup.json("plan") if row["kind"] == "command"]
    done = follow(trueup)
    for numbers, broker in zip((range(100, 150), range(150, 200)), clusters.values(), strict=True):
        write(broker, PURGED, numbers)
    for broker in clusters.values():
        trueup.until("the new records", lambda broker=broker: values(broker, PURGED) == [*range(100, 200)])
    trueup.until("both links to be up", lambda: all(link(trueup, name)["state"] == "up" for name in PAIR))
    assert done[0] in planned


def test_a_reset_to_the_end_is_not_undone(trueup: Trueup, clusters: dict[str, Kafka]) -> None:
    recreate(clusters, PURGED)
    trueup.until("both links to stop", lambda: all(link(trueup, name)["ways"] for name in PAIR))
    for name in PAIR:
        assert trueup.run("link", "reset", name, "--to", "latest", "--yes").code == 0
    rounds = {name: link(trueup, name)["rounds"] for name in PAIR}
    trueup.until("two leases", lambda: all(link(trueup, name)["rounds"] >= rounds[name] + 2 for name in PAIR))
    assert [link(trueup, name)["ways"] for name in PAIR] == [[], []]


def test_a_right_that_is_taken_away_stops_the_link_and_its_lag_is_unknown(
    trueup: Trueup, clusters: dict[str, Kafka]
) -> None:
    trueup.until("the copy", lambda: link(trueup, "guarded")["state"] == "up")
    client = admin(clusters["east"])
    deny = (ResourceType.TOPIC, SECRET, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*")
    rule = (*deny, AclOperation.ALL, AclPermissionType.DENY)
    for future in client.create_acls([AclBinding(*rule)]).values():
        future.result(30)

    def stopped() -> dict[str, Any] | None:
        """The topic, after the copier and the monitor, which find the missing right at different times."""
        if (row := link(trueup, "guarded"))["state"] != "stopped":
            return None
        (topic,) = (each for each in row["by_topic"] if each["topic"] == SECRET)
        return topic if topic["lag_records"] == -1 else None

    topic = trueup.until("the link to stop, with an unknown lag", stopped, STOP_S)
    states, rounds = list[str](), link(trueup, "guarded")["rounds"]

    def more_rounds() -> bool:
        row = link(trueup, "guarded")
        states.append(row["state"])
        return bool(row["rounds"] >= rounds + 3)

    trueup.until("rounds of the other topic", more_rounds)
    for future in client.delete_acls([AclBindingFilter(*rule)]).values():
        future.result(30)
    assert (topic["stage"], "AUTHORIZATION" in topic["error"].upper(), topic["lag_records"]) == ("stopped", True, -1)
    assert "up" not in states
    trueup.until("the link to continue", lambda: link(trueup, "guarded")["state"] == "up")


def test_a_declared_topic_that_does_not_exist_is_a_finding(trueup: Trueup) -> None:
    found, findings = link(trueup, "absent"), trueup.json("get", "findings", "--stream", "replication")
    rules = {row["rule"] for row in findings if row["link"] == "absent"}
    assert (found["state"], found["lag_records"], rules) == ("waiting", -1, {"replication.topic-gone"})


def test_renames_in_both_directions_make_one_copy_of_each_topic(trueup: Trueup, clusters: dict[str, Kafka]) -> None:
    def renamed(cluster: str) -> set[str]:
        return {name for name in names(clusters[cluster]) if "ren-" in name}

    for name in ("renamed", "renamed-back"):
        trueup.until("the copies", lambda name=name: link(trueup, name)["state"] == "up")
    rounds = link(trueup, "renamed")["rounds"]
    trueup.until("many more looks", lambda: link(trueup, "renamed")["rounds"] >= rounds + 6)
    assert (renamed("east"), renamed("west")) == ({"ren-a", "west.ren-b", BEATS}, {"ren-b", "east.ren-a", BEATS})


def test_a_group_behind_the_retention_of_the_source_begins_at_the_first_record(
    trueup: Trueup, clusters: dict[str, Kafka]
) -> None:
    def offset() -> int:
        return committed_offset(clusters["west"].bootstrap, "readers", BEHIND)

    trueup.until("the group at the target", lambda: offset() >= 0)
    assert (offset(), values(clusters["west"], BEHIND)) == (0, [*range(60, 100)])
