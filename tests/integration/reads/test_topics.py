"""Topics written by Pulsar's client and read by `trueup read`, from bookies and tiered storage, with servers killed."""

import base64
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pulsar
import pytest

from tests.integration.reads.topics import (
    ALONE,
    BOOKIES_FIRST,
    COUNT,
    KINDS,
    NAMESPACE,
    PER_LEDGER,
    TIERED_FIRST,
    Load,
    Seen,
    Start,
    as_pulsar,
    confirmed,
    ids,
    last_ledger,
    rows_seen,
    write,
)
from trueup.connectors.sandbox.forgetting import listed, path, session
from trueup.connectors.sandbox.pulsar import BUCKET, SandboxPulsar
from trueup.state.common.errors import Retry
from trueup.state.reads.tiers import Tier
from trueup.streams.catalog import sections
from trueup.streams.cli.main import invoke
from trueup.streams.config.file import load as load_settings
from trueup.streams.reads.topics import opened
from trueup.streams.terminal import codes

pytestmark = [pytest.mark.servers, pytest.mark.timeout(600)]


class Read(NamedTuple):
    """The result of `trueup read -o json`."""

    code: int
    messages: list[Seen]
    tiers: list[str]
    errors: str


@pytest.fixture
def trueup(keys: dict[str, str], capsys: pytest.CaptureFixture[str]) -> Callable[..., Read]:
    def run(topic: str, *words: str) -> Read:
        pairs = [word for name, value in keys.items() for word in ("--set", f"{name}={value}")]
        capsys.readouterr()
        code = invoke(["read", f"{NAMESPACE}/{topic}", "-o", "json", *words, *pairs])
        captured = capsys.readouterr()
        rows = [json.loads(line) for line in captured.out.splitlines()]
        return Read(code, [*map(seen, rows)], [row["tier"] for row in rows], captured.err)

    return run


def seen(row: dict[str, Any]) -> Seen:
    value = base64.b64decode(row["value_base64"]) if "value_base64" in row else row["value"].encode()
    where = row["ledger"], row["entry"], row["batch_index"]
    return Seen(
        where, row["key"] or "", row["ordering_key"] or "", dict(row["properties"]), value, row["publish_ms"],
        row["event_ms"],
    )  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_messages_from_bookies_equal_those_of_pulsars_reader(
    kind: str, written: dict[str, list[Seen]], trueup: Callable[..., Read]
) -> None:
    found = trueup(kind)
    assert (found.code, found.messages, {*found.tiers}) == (codes.OK, written[kind], {"bookkeeper"})


@pytest.mark.parametrize("kind", KINDS)
def test_messages_from_tiered_storage_equal_those_of_pulsars_reader(
    kind: str, written: dict[str, list[Seen]], trueup: Callable[..., Read]
) -> None:
    found = trueup(kind, "--priority", "tiered-storage-first")
    tiers = ["bookkeeper" if message.id[0] == last_ledger(written[kind]) else "tiered" for message in written[kind]]
    assert (found.messages, found.tiers) == (written[kind], tiers)


def test_an_encrypted_message_is_marked(written: dict[str, list[Seen]], load: Load) -> None:
    assert load("encrypted").where("encrypted").count() == COUNT
    assert load("plain").where("encrypted").count() == 0


def test_a_range_of_message_ids_is_read(written: dict[str, list[Seen]], trueup: Callable[..., Read]) -> None:
    messages = written["plain"]
    first, last = messages[25], messages[70]
    found = trueup("plain", "--from", "{}:{}".format(*first.id), "--to", "{}:{}".format(*last.id))
    assert found.messages == messages[25:71]


def test_a_range_of_publish_times_is_read(written: dict[str, list[Seen]], trueup: Callable[..., Read]) -> None:
    from datetime import UTC, datetime

    messages = written["plain"]
    begin, end = messages[25].publish_ms, messages[-1].publish_ms
    times = [datetime.fromtimestamp(at / 1_000, UTC).isoformat() for at in (begin, end)]
    found = trueup("plain", "--from", times[0], "--to", times[1])
    assert found.messages == [message for message in messages if begin <= message.publish_ms < end]


def test_a_partitioned_topic_is_read_partition_by_partition(
    cluster: SandboxPulsar, client: pulsar.Client, trueup: Callable[..., Read]
) -> None:
    cluster.ask("PUT", f"persistent/{NAMESPACE}/parted/partitions", 2)
    for number in range(2):
        write(client, f"parted-partition-{number}", range(10), **ALONE)
    expected = [one for number in range(2) for one in confirmed(as_pulsar(client, f"parted-partition-{number}"))]
    assert trueup("parted").messages == expected


LIKE_PARTITIONS = ("like-partition-01", "like-partition-20260101120000", "like-partition-0-sub-COPY")
LIKE_SYSTEM = ("like__change_events", "like__healthcheck", "like__transaction_history", "like__load_balancer_stats")


@pytest.fixture(scope="module")
def like(cluster: SandboxPulsar, client: pulsar.Client) -> dict[str, list[Seen]]:
    """A partitioned topic, and topics of their own with names like its partitions or like system topics."""
    cluster.ask("PUT", f"persistent/{NAMESPACE}/like/partitions", 2)
    names = ("like-partition-0", "like-partition-1", *LIKE_PARTITIONS, *LIKE_SYSTEM)
    for name in names:
        write(client, name, range(3), **ALONE)
    return {name: confirmed(as_pulsar(client, name)) for name in names}


def test_topics_with_names_like_partitions_are_not_read_as_partitions(
    like: dict[str, list[Seen]], trueup: Callable[..., Read]
) -> None:
    assert trueup("like").messages == like["like-partition-0"] + like["like-partition-1"]
    assert [trueup(name).messages for name in LIKE_PARTITIONS] == [like[name] for name in LIKE_PARTITIONS]


def test_an_expression_leaves_out_no_topic_of_users(like: dict[str, list[Seen]], keys: dict[str, str]) -> None:
    with opened(load_settings(None, {}, keys, sections()), BOOKIES_FIRST) as topics:
        found = topics.matching(NAMESPACE, "/like.*/")
    assert [(one.local, one.partition) for one in found] == sorted(
        (name, {"like-partition-0": 0, "like-partition-1": 1}.get(name, -1)) for name in like
    )


def test_of_a_topic_with_and_without_partitions_the_partitions_are_read_as_clients_read_them(
    cluster: SandboxPulsar, client: pulsar.Client, trueup: Callable[..., Read], keys: dict[str, str]
) -> None:
    write(client, "twofold", range(3), **ALONE)
    with session(cluster.zookeeper.address) as zookeeper:  # brokers refuse to create both now
        node = f"/admin/partitioned-topics/{NAMESPACE}/persistent/twofold"
        zookeeper.create(node, b'{"partitions":2}', makepath=True)
    for number in range(2):
        write(client, f"twofold-partition-{number}", range(4), **ALONE)
    expected = [one for number in range(2) for one in confirmed(as_pulsar(client, f"twofold-partition-{number}"))]
    assert trueup("twofold").messages == expected
    with opened(load_settings(None, {}, keys, sections()), BOOKIES_FIRST) as topics:
        assert [one.local for one in topics.matching(NAMESPACE, "/twofold/")] == [
            "twofold-partition-0", "twofold-partition-1",
        ]  # fmt: skip


def test_partitions_without_a_partitioned_topic_are_named_in_the_refusal(
    client: pulsar.Client, trueup: Callable[..., Read]
) -> None:
    write(client, "alone-partition-4", range(3), **ALONE)
    found = trueup("alone")
    assert (found.code, "alone-partition-4" in found.errors) == (codes.REFUSED, True)
    assert len(trueup("alone-partition-4").messages) == 2


def test_a_reader_does_not_fence_the_open_ledger(
    cluster: SandboxPulsar, client: pulsar.Client, trueup: Callable[..., Read]
) -> None:
    producer = client.create_producer(f"persistent://{NAMESPACE}/live", **ALONE)
    for _ in range(3):
        producer.send(b"before")
    before, found = listed(cluster, f"{NAMESPACE}/live"), trueup("live")
    producer.send(b"after")
    producer.close()
    assert (len(found.messages), listed(cluster, f"{NAMESPACE}/live")) == (2, before)


def test_a_topic_that_does_not_exist_is_refused(trueup: Callable[..., Read]) -> None:
    assert trueup("nothing").code == codes.REFUSED


def test_entries_that_no_tier_has_are_an_error_or_are_skipped(
    cluster: SandboxPulsar, client: pulsar.Client, trueup: Callable[..., Read]
) -> None:
    write(client, "lossy", range(3 * PER_LEDGER + 5), **ALONE)
    expected, lost = confirmed(as_pulsar(client, "lossy")), listed(cluster, f"{NAMESPACE}/lossy")[1]
    with session(cluster.zookeeper.address) as zookeeper:
        content = zookeeper.get(path(lost))[0]
        zookeeper.delete(path(lost))
        stopped, skipped = trueup("lossy"), trueup("lossy", "--missing", "skip")
        zookeeper.create(path(lost), content)
    assert (stopped.code, stopped.messages) == (codes.ATTENTION, [m for m in expected if m.id[0] < lost])
    assert (skipped.code, skipped.messages) == (codes.INCOMPLETE, [m for m in expected if m.id[0] != lost])


def test_a_missing_object_is_read_from_bookies(
    written: dict[str, list[Seen]], store: Any, trueup: Callable[..., Read]
) -> None:
    ledger = written["zstd"][0].id[0]
    keys = [one["Key"] for one in store.list_objects_v2(Bucket=BUCKET)["Contents"]]
    (key,) = (one for one in keys if one.endswith(f"-ledger-{ledger}"))
    store.delete_object(Bucket=BUCKET, Key=key)
    found = trueup("zstd", "--priority", "tiered-storage-first")
    assert (found.messages, found.tiers[0]) == (written["zstd"], "bookkeeper")
    assert f"ledger {ledger}: from entry 0 on not from tiered" in found.errors


def test_all_is_read_with_every_broker_stopped(
    cluster: SandboxPulsar, written: dict[str, list[Seen]], trueup: Callable[..., Read], load: Load
) -> None:
    cluster.kill("broker")
    assert rows_seen(load("zlib", priority="tiered-storage-first")) == written["zlib"]
    assert [trueup(kind).messages == written[kind] for kind in KINDS] == [True] * len(KINDS)


def test_the_other_bookie_goes_on_when_one_is_killed_during_a_read(
    cluster: SandboxPulsar, written: dict[str, list[Seen]], start: Start, trueup: Callable[..., Read]
) -> None:
    with start("plain") as (found, _):
        first = next(found)
        cluster.kill("bookie1")
        assert ids(iter([first])) + ids(found) == [one.id for one in written["plain"]]
    assert trueup("plain").messages == written["plain"]


def test_tiered_storage_goes_on_when_all_bookies_are_killed_during_a_read(
    cluster: SandboxPulsar, written: dict[str, list[Seen]], start: Start, trueup: Callable[..., Read]
) -> None:
    offloaded = [message for message in written["plain"] if message.id[0] != last_ledger(written["plain"])]
    received = []
    with start("plain") as (messages, report):
        received.append(next(messages))
        cluster.kill("bookie2")
        with pytest.raises(Retry):  # of the open ledger
            received.extend(messages)
    found = trueup("plain")
    for name in ("bookie1", "bookie2"):
        cluster.start(name)
    assert (ids(iter(received)), {*report.entries}) == ([one.id for one in offloaded], {*Tier})
    assert (found.code, found.messages, {*found.tiers}) == (codes.UNREACHABLE, offloaded, {"tiered"})


def test_bookies_go_on_when_the_store_is_killed_during_a_read(
    cluster: SandboxPulsar, written: dict[str, list[Seen]], start: Start, trueup: Callable[..., Read]
) -> None:
    with start("plain", TIERED_FIRST) as (messages, report):
        first = next(messages)
        cluster.kill("objects")  # its objects are in memory: no later test can read them
        assert ids(iter([first])) + ids(messages) == [one.id for one in written["plain"]]
    found = trueup("plain", "--priority", "tiered-storage-first")
    assert (first.tier, {*report.entries}) == (Tier.TIERED, {*Tier})
    assert (found.messages, {*found.tiers}) == (written["plain"], {"bookkeeper"})
