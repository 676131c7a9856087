"""Topics written by Pulsar's client and read by `trueup read`, from bookies and tiered storage, with servers killed."""

from collections.abc import Callable
from typing import Any

import pulsar
import pytest

from tests.integration.topic_reader.topics import (
    ALONE,
    COUNT,
    KINDS,
    NAMESPACE,
    PER_LEDGER,
    TIERED_FIRST,
    Load,
    Read,
    Seen,
    Start,
    as_pulsar,
    confirmed,
    ids,
    last_ledger,
    rows_seen,
    write,
)
from trueup.sandbox.forgetting import listed, path, session
from trueup.sandbox.pulsar import BUCKET, SandboxPulsar
from trueup.state.common.errors import Retry
from trueup.state.read_priority.tiers import Tier
from trueup.streams.terminal import codes

pytestmark = [pytest.mark.servers, pytest.mark.timeout(600)]


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
