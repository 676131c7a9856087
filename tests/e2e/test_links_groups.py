"""Groups of topics that several links write to: a full mesh of three clusters, and two clusters that copy into one."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.e2e.trueup import Trueup
from tests.replication.groups import commit_offset, committed_offset
from tests.replication.pair import QUICK
from tests.replication.reading import committed
from trueup.connectors.embedded.kafka import Kafka

pytestmark = [pytest.mark.servers, pytest.mark.release]
CLUSTERS = ("east", "west", "north")
MESH, SUM = "orders", "sums"
BILLING, TALLY = "billing", "tally"
EACH = 5


@pytest.fixture(scope="module")
def clusters(new_root: Callable[[], Path]) -> Iterator[dict[str, Kafka]]:
    made = {name: Kafka(new_root(), settings=QUICK) for name in CLUSTERS}
    try:
        for broker in made.values():
            broker.start()
        for broker in made.values():
            broker.wait_ready()
            client = AdminClient({"bootstrap.servers": broker.bootstrap})
            for topic in (MESH, SUM):
                client.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
        yield made
    finally:
        for broker in made.values():
            broker.close()


@pytest.fixture(scope="module")
def trueup(clusters: dict[str, Kafka], new_root: Callable[[], Path]) -> Iterator[Trueup]:
    links: dict[str, dict[str, object]] = {
        f"{source}-{target}": {
            "source": source,
            "target": target,
            "mode": "enforce",
            "lease_s": 1,
            "heartbeat_s": 1,
            "forward": False,
            "topics": [MESH, SUM] if target == "west" else [MESH],
        }
        for source in CLUSTERS
        for target in CLUSTERS
        if source != target
    }
    links["east-west"]["groups"] = [BILLING, TALLY]
    kafka = {name: {"bootstrap": clusters[name].bootstrap, "bit": bit} for bit, name in enumerate(CLUSTERS)}
    with Trueup(None, new_root(), kafka=kafka, links=links) as made:
        made.start()
        yield made


def write(broker: Kafka, topic: str, name: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(EACH):
        producer.produce(topic, f"{name}-{number}", partition=0)
    assert producer.flush(60) == 0


def records(broker: Kafka, topic: str) -> list[Message]:
    return committed(broker.bootstrap, topic, [0])


def values(messages: list[Message]) -> set[bytes | None]:
    return {message.value() for message in messages}


def checkpoint(trueup: Trueup, group: str, topic: str) -> dict[str, Any]:
    rows = trueup.api("links/east-west")["checkpoints"]
    return next((row for row in rows if (row["group"], row["source"]) == (group, f"{topic}-0")), {})


def until_committed(trueup: Trueup, group: str, topic: str, offset: int) -> None:
    def there() -> bool:
        row = checkpoint(trueup, group, topic)
        return (row.get("translated"), row.get("action")) == (offset, "kept")

    trueup.until(f"{group} to be at {offset}", there)


def test_in_a_mesh_a_group_skips_no_record_of_a_third_cluster(trueup: Trueup, clusters: dict[str, Kafka]) -> None:
    east, west, north = clusters.values()
    for name, broker in clusters.items():
        write(broker, MESH, name)
    for broker in clusters.values():
        trueup.until("all records", lambda broker=broker: len(records(broker, MESH)) == 3 * EACH)
    trueup.set("links.north-east.paused_topics", MESH)
    trueup.until("the pause", lambda: trueup.api("links/north-east")["leases"] == 0)
    write(north, MESH, "late")
    trueup.until("the records of north", lambda: len(records(west, MESH)) == 4 * EACH)
    write(east, MESH, "last")
    trueup.until("the records of east", lambda: len(records(west, MESH)) == 5 * EACH)
    read = records(east, MESH)
    commit_offset(east.bootstrap, BILLING, MESH, len(read))
    until_committed(trueup, BILLING, MESH, 3 * EACH)
    offset = committed_offset(west.bootstrap, BILLING, MESH)
    rest = [message for message in records(west, MESH) if (message.offset() or 0) >= offset]
    assert values(read) | values(rest) == values(records(west, MESH))


def test_the_group_continues_when_the_records_of_the_third_cluster_were_read(
    trueup: Trueup, clusters: dict[str, Kafka]
) -> None:
    east, west, _ = clusters.values()
    assert trueup.run("config", "set", "links.north-east.paused_topics", "--default").code == 0
    trueup.until("the records of north", lambda: len(records(east, MESH)) == 5 * EACH)
    commit_offset(east.bootstrap, BILLING, MESH, 5 * EACH)
    until_committed(trueup, BILLING, MESH, 5 * EACH)
    assert committed_offset(west.bootstrap, BILLING, MESH) == 5 * EACH


def test_where_two_clusters_copy_into_one_a_group_is_not_translated_and_the_reason_is_shown(
    trueup: Trueup, clusters: dict[str, Kafka]
) -> None:
    east, west, north = clusters.values()
    for name, broker in (("east", east), ("north", north)):
        write(broker, SUM, name)
    trueup.until("all records", lambda: len(records(west, SUM)) == 2 * EACH)
    commit_offset(east.bootstrap, TALLY, SUM, EACH)
    trueup.until("the group", lambda: checkpoint(trueup, TALLY, SUM))
    findings = [row for row in trueup.json("get", "findings", "--stream", "replication") if TALLY in row["reason"]]
    assert [(row["rule"], "link north-west also copies to sums-0" in row["reason"]) for row in findings] == [
        ("replication.group-untranslated", True)
    ]


def test_no_offset_was_committed_for_that_group(trueup: Trueup, clusters: dict[str, Kafka]) -> None:
    trueup.until("the reason", lambda: checkpoint(trueup, TALLY, SUM).get("action") == "waiting")
    west = clusters["west"].bootstrap
    offsets = committed_offset(west, TALLY, SUM), committed_offset(west, BILLING, MESH)
    assert offsets == (-1, 5 * EACH)  # the second shows that the coordinator responds


def test_after_a_cluster_is_lost_for_good_groups_continue_without_its_links(
    trueup: Trueup, clusters: dict[str, Kafka]
) -> None:
    east, west, north = clusters.values()
    north.kill()
    trueup.until("the link to be down", lambda: trueup.api("links/north-west")["state"] == "down")
    write(east, MESH, "later")
    trueup.until("the records of east", lambda: len(records(west, MESH)) == 6 * EACH)
    commit_offset(east.bootstrap, BILLING, MESH, 6 * EACH)
    trueup.until("a group that is held back", lambda: checkpoint(trueup, BILLING, MESH).get("lag") == EACH)
    assert trueup.end() == 0
    settings = json.loads(trueup.file.read_text())
    settings["links"] = {name: link for name, link in settings["links"].items() if "north" not in name}
    trueup.file.write_text(json.dumps(settings))
    trueup.start()
    until_committed(trueup, BILLING, MESH, 6 * EACH)
