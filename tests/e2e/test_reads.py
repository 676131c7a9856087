"""Read priorities, end to end: a real Pulsar, a Java consumer that stalls at a lost copy, and `trueup run`."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.trueup import Trueup, command
from tests.integration.topic_reader.topics import rot
from tests.objects import client_of
from trueup.sandbox.forgetting import listed, offload, path, session, unload
from trueup.sandbox.gateway import Gateway
from trueup.sandbox.java_consumer import JavaConsumer
from trueup.sandbox.messages import MessageClient, MessagesReadback, compare, payload
from trueup.sandbox.pulsar import BUCKET, SandboxPulsar
from trueup.sandbox.servers.objects import REGION
from trueup.streams.terminal.client import Api
from trueup.streams.topic_reader.spark.source import PulsarLedgers

pytestmark = [pytest.mark.servers, pytest.mark.release, pytest.mark.usefixtures("reads_here"), pytest.mark.timeout(900)]
PER_LEDGER, COUNT = 20, 70
NAMESPACE = "public/default"
KEY, SECRET = "reads-key-id", "reads-secret-key"
FIELD = "managedLedgerOffloadedReadPriority"
SETTINGS = {
    "managedLedgerMaxEntriesPerLedger": PER_LEDGER,
    "managedLedgerOffloadDeletionLagMs": 86_400_000,
    "topicLevelPoliciesEnabled": "true",
    "systemTopicEnabled": "true",
}
STALLED_MS = 4_000
"""A consumer without a message for this time is stalled: the broker retries a failed read after a second at most."""
GOES_ON_MS = 240_000
"""A consumer that received a message receives the next within this time, however busy the machine is."""


def all_of(consumer: JavaConsumer) -> MessagesReadback:
    """Everything that the consumer receives until it has all messages."""
    while len(consumer.contents) < COUNT + 3:
        assert consumer.take(GOES_ON_MS), f"stalled after {len(consumer.contents)} messages"
    return compare(consumer.topic, consumer.contents)


@pytest.fixture(scope="module")
def cluster(new_root: Callable[[], Path]) -> Iterator[SandboxPulsar]:
    with SandboxPulsar(new_root(), settings=SETTINGS, tiered=True) as made:
        made.up()
        yield made


@pytest.fixture(scope="module")
def gateway(cluster: SandboxPulsar, new_root: Callable[[], Path]) -> Iterator[Gateway]:
    made = Gateway("java", new_root(), cluster.jar_set)
    yield made
    made.close()


@pytest.fixture(scope="module")
def store(cluster: SandboxPulsar) -> Any:
    return client_of(cluster.objects.endpoint)


@pytest.fixture(scope="module")
def written(cluster: SandboxPulsar, messages: MessageClient) -> dict[str, list[int]]:
    """The ledgers of each topic. All are offloaded but the open one."""
    found = {}
    cluster.ask("PUT", f"persistent/{NAMESPACE}/parted/partitions", 2)
    for name in ("tiered", "kept", "cached", "parted-partition-0", "parted-partition-1"):
        topic = f"{NAMESPACE}/{name}"
        messages.write(topic, range(COUNT))
        unload(cluster, topic)
        messages.write(topic, range(COUNT, COUNT + 3))
        offload(cluster, topic)
        found[topic] = listed(cluster, topic)
    policy = cluster.ask("GET", f"persistent/{NAMESPACE}/tiered/offloadPolicies?applied=true")
    secrets = {"s3ManagedLedgerOffloadCredentialId": KEY, "s3ManagedLedgerOffloadCredentialSecret": SECRET}
    cluster.ask("POST", f"namespaces/{NAMESPACE}/offloadPolicies", {**policy, **secrets, FIELD: "BOOKKEEPER_FIRST"})
    return found


@pytest.fixture(scope="module")
def trueup(cluster: SandboxPulsar, written: dict[str, list[int]], new_root: Callable[[], Path]) -> Iterator[Trueup]:
    assert written
    stores = {
        "bucket": BUCKET,
        "region": REGION,
        "endpoint": cluster.objects.endpoint,
        "key_env": "E2E_KEY",
        "secret_env": "E2E_SECRET",
    }
    reads = {
        "admin": [cluster.admin_url],
        "mode": "approve",
        "interval_s": 0.5,
        "settle_looks": 3,
        "settle_s": 2.0,
        "declared": {f"{NAMESPACE}/kept": "bookkeeper-first", NAMESPACE: "tiered-storage-first"},
    }
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("E2E_KEY", "id")
        environment.setenv("E2E_SECRET", "secret")
        with Trueup(cluster, new_root(), read_priority=reads, stores={"archive": stores}) as made:
            made.start()
            yield made


def waiting(trueup: Trueup, about: str) -> str | None:
    """The id of an action that waits for approval."""
    rows = [row for row in trueup.api("plan") if row["stage"] == "awaiting approval" and about in row["id"]]
    return rows[0]["id"] if rows else None


def approved(trueup: Trueup, about: str) -> None:
    action = trueup.until(f"{about} to wait", lambda: waiting(trueup, about))
    assert trueup.run("approve", action).code == 0
    trueup.until(f"{about} to be done", lambda: (action, "done") in outcomes(trueup))


def outcomes(trueup: Trueup) -> set[tuple[str, str]]:
    return {(row["id"], row["outcome"]) for row in trueup.api("actions?limit=200")}


def in_force(cluster: SandboxPulsar, name: str) -> str | None:
    found = cluster.ask("GET", f"persistent/{NAMESPACE}/{name}/offloadPolicies?applied=true").get(FIELD)
    return None if found is None else str(found)


def rule_of(trueup: Trueup, name: str) -> str:
    rows = {row["name"]: row["rule"] for row in trueup.api("read-priorities")}
    return str(rows.get(f"{NAMESPACE}/{name}", ""))


def test_the_declared_priority_is_set_and_every_other_field_stays(trueup: Trueup, cluster: SandboxPulsar) -> None:
    before = cluster.ask("GET", f"namespaces/{NAMESPACE}/offloadPolicies")
    approved(trueup, f"declare/{NAMESPACE}/tiered-storage-first")
    after = cluster.ask("GET", f"namespaces/{NAMESPACE}/offloadPolicies")
    assert after == {**before, FIELD: "TIERED_STORAGE_FIRST"}
    assert after["s3ManagedLedgerOffloadCredentialSecret"] == SECRET


def test_a_consumer_goes_on_that_stalled_at_missing_objects(
    trueup: Trueup, cluster: SandboxPulsar, written: dict[str, list[int]], store: Any, gateway: Gateway
) -> None:
    topic = f"{NAMESPACE}/tiered"
    kept = removed(store, written[topic][1])
    consumer = JavaConsumer(gateway, cluster.service_url, topic)
    assert consumer.take_all(STALLED_MS) == PER_LEDGER
    trueup.until("it to be found", lambda: rule_of(trueup, "tiered") == "read_priority.would-stall")
    approved(trueup, f"switch/{topic}/bookkeeper-first")
    assert all_of(consumer) == (tuple(range(COUNT + 3)), 0)
    consumer.close()
    assert (in_force(cluster, "tiered"), rule_of(trueup, "tiered")) == ("BOOKKEEPER_FIRST", "read_priority.switched")
    for key, content in kept.items():
        store.put_object(Bucket=BUCKET, Key=key, **content)
    approved(trueup, f"return/{topic}/none")
    assert cluster.ask("GET", f"persistent/{topic}/offloadPolicies") is None
    assert in_force(cluster, "tiered") == "TIERED_STORAGE_FIRST"


def test_a_consumer_goes_on_that_stalled_at_a_missing_ledger(
    trueup: Trueup, cluster: SandboxPulsar, written: dict[str, list[int]], gateway: Gateway
) -> None:
    topic = f"{NAMESPACE}/kept"
    approved(trueup, f"declare/{topic}/bookkeeper-first")
    lost = written[topic][1]
    with session(cluster.zookeeper.address) as zookeeper:
        zookeeper.delete(path(lost))  # bookies delete its entries soon: it cannot return
    consumer = JavaConsumer(gateway, cluster.service_url, topic)
    assert consumer.take_all(STALLED_MS) == PER_LEDGER
    approved(trueup, f"switch/{topic}/tiered-storage-first")
    assert all_of(consumer) == (tuple(range(COUNT + 3)), 0)
    consumer.close()
    assert (in_force(cluster, "kept"), rule_of(trueup, "kept")) == ("TIERED_STORAGE_FIRST", "read_priority.switched")


def test_a_partitioned_topic_is_switched_as_a_whole_when_one_partition_would_stall(
    trueup: Trueup, cluster: SandboxPulsar, written: dict[str, list[int]], store: Any, gateway: Gateway
) -> None:
    topic, partition = f"{NAMESPACE}/parted", f"{NAMESPACE}/parted-partition-1"
    lost = written[partition][1]
    removed(store, lost)
    consumer = JavaConsumer(gateway, cluster.service_url, topic)
    assert consumer.take_all(STALLED_MS) == COUNT + 3 + PER_LEDGER
    trueup.until("it to be found", lambda: rule_of(trueup, "parted") == "read_priority.would-stall")
    bad = [one for one in trueup.json("describe", "topic", topic)["copies"] if one["stalls"]]
    assert [(one["ledger"], one["part"]) for one in bad] == [(lost, partition)]
    approved(trueup, f"switch/{topic}/bookkeeper-first")
    while len(consumer.contents) < 2 * (COUNT + 3):
        assert consumer.take(GOES_ON_MS), f"stalled after {len(consumer.contents)} messages"
    consumer.close()
    both = [payload(f"{topic}-partition-{number}", k) for number in range(2) for k in range(COUNT + 3)]
    assert sorted(consumer.contents) == sorted(both)
    assert in_force(cluster, "parted") == "BOOKKEEPER_FIRST"


def test_a_switched_topic_is_unloaded_after_an_approval_of_its_own_and_its_consumer_goes_on(
    trueup: Trueup, cluster: SandboxPulsar, written: dict[str, list[int]], store: Any, gateway: Gateway
) -> None:
    topic = f"{NAMESPACE}/cached"
    trueup.set("read_priority.unload", "true")
    consumer = JavaConsumer(gateway, cluster.service_url, topic, queue=1)
    while len(consumer.contents) < PER_LEDGER + 5:  # the broker keeps the handle of this ledger's copy
        assert consumer.take(GOES_ON_MS)
    removed(store, written[topic][2])
    approved(trueup, f"switch/{topic}/bookkeeper-first")
    trueup.until("the unload to wait", lambda: waiting(trueup, f"unload/{topic}"))
    assert (listed(cluster, topic), trueup.json("describe", "topic", topic)["unloaded"]) == (written[topic], False)
    approved(trueup, f"unload/{topic}")
    assert listed(cluster, topic)[:-1] == written[topic]  # its open ledger was closed, and another one created
    while len({*consumer.contents}) < COUNT + 3:  # it may receive again what the broker had not noted as acknowledged
        assert consumer.take(GOES_ON_MS), f"stalled after {len(consumer.contents)} messages"
    consumer.close()
    assert {*consumer.contents} == {payload(topic, number) for number in range(COUNT + 3)}
    shown = trueup.json("describe", "topic", topic)
    assert (shown["unloaded"], [event["event"] for event in shown["history"]]) == (
        True,
        ["switch approved", "switch ordered", "switch done", "unload approved", "unload done"],
    )
    trueup.set("read_priority.unload", "false")


def test_a_topic_is_described_ledger_by_ledger(trueup: Trueup, written: dict[str, list[int]]) -> None:
    found = trueup.json("describe", "topic", f"{NAMESPACE}/tiered")
    assert [one["ledger"] for one in found["copies"]] == written[f"{NAMESPACE}/tiered"][:-1]
    assert {(one["bookkeeper"], one["tiered"], one["broker"]) for one in found["copies"]} == {
        ("whole", "whole", "tiered")
    }


def test_credentials_of_policies_are_neither_served_nor_written(trueup: Trueup) -> None:
    paths = (
        "api/status",
        "api/read-priorities",
        "api/plan",
        "api/config",
        "api/findings?stream=read_priority",
        "metrics",
        "",
    )
    shown = "".join(trueup.get(path)[1] for path in (*paths, f"api/read-priorities/{NAMESPACE}/tiered", "api/actions"))
    files = [trueup.process.log, *trueup.data.rglob("*")]
    written = [one for one in files if one.is_file() and SECRET.encode() in one.read_bytes()]
    assert (SECRET in shown, KEY in shown, written) == (False, False, [])


def test_a_forged_report_of_a_damaged_replica_is_read_and_dropped(
    trueup: Trueup, cluster: SandboxPulsar, written: dict[str, list[int]]
) -> None:
    ledger, bookie = written[f"{NAMESPACE}/tiered"][0], cluster.bookies[1].id
    forged = {"ledger": ledger, "bookie": bookie, "first": 0, "last": 5, "found": "missing"}
    assert Api(trueup.url).post("replica-reports", {"replicas": [forged]}) == {"new": 1}
    trueup.until(
        "its own read to refute it", lambda: trueup.metric("trueup_replica_reports_total", outcome="refuted") == 1
    )
    assert trueup.api("findings?rule=placement.replica-damaged") == []
    assert [row for row in trueup.api("plan") if row["ledger"] is not None] == []


def test_a_damaged_replica_that_a_read_reports_becomes_a_finding(
    trueup: Trueup, cluster: SandboxPulsar, messages: MessageClient
) -> None:
    topic = f"{NAMESPACE}/rotten"
    messages.write(topic, range(PER_LEDGER + 5))
    ledger = listed(cluster, topic)[0]
    for number in (1, 2):  # the read may begin with either bookie
        rot(cluster, number, payload(topic, 2 + number))
    source = PulsarLedgers({"config": str(trueup.file), "topics": topic, "report_to": trueup.url})
    reader = source.reader(source.schema())
    assert sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part)) >= PER_LEDGER
    rows = trueup.until("it to be confirmed", lambda: trueup.api("findings?rule=placement.replica-damaged"))
    rotten = {(cluster.bookies[number].id, 2 + number, "digest", "blocked", True) for number in (1, 2)}
    shown = {(row["bookie"], row["first"], row["found"], row["verdict"], row["confirmed"]) for row in rows}
    assert ({row["ledger"] for row in rows}, shown <= rotten) == ({ledger}, True)
    details = {one["detail"] for one in trueup.json("describe", "ledger", str(ledger))["damages"] if one["confirmed"]}
    found = command("read", topic, "--report-to", trueup.url, "--limit", "20", "-c", str(trueup.file))
    assert (found.code, "not from bookie" in found.err, "not reported" in found.err) == (0, True, False)
    assert details <= {f"of 1 entry that Trueup read: 1 with a wrong digest, first {entry}" for entry in (3, 4)}


def removed(store: Any, ledger: int) -> dict[str, dict[str, Any]]:
    """Delete both objects of a ledger; returns them by key."""
    keys = [one["Key"] for one in store.list_objects_v2(Bucket=BUCKET)["Contents"]]
    names = (f"-ledger-{ledger}", f"-ledger-{ledger}-index")
    kept = {key: stored(store, key) for key in keys if key.endswith(names)}
    for key in kept:
        store.delete_object(Bucket=BUCKET, Key=key)
    return kept


def stored(store: Any, key: str) -> dict[str, Any]:
    """An object with its metadata. Brokers do not read an object whose metadata lack the format."""
    found = store.get_object(Bucket=BUCKET, Key=key)
    return {"Body": found["Body"].read(), "Metadata": found["Metadata"]}


def test_the_demo_shows_both() -> None:
    assert command("demo", "reads").code == 0
