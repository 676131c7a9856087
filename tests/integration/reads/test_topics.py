"""Topics written by Pulsar's client and read by `trueup read`, from bookies and tiered storage, with servers killed."""

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import boto3
import pulsar
import pytest

from trueup.connectors.sandbox.forgetting import listed, offload, path, session, unload
from trueup.connectors.sandbox.pulsar import BUCKET, SandboxPulsar
from trueup.connectors.sandbox.servers.objects import REGION
from trueup.streams.cli.main import invoke
from trueup.streams.terminal import codes

pytestmark = [pytest.mark.servers, pytest.mark.timeout(600)]
NAMESPACE, COUNT, PER_LEDGER = "public/default", 130, 20
KEEPS_MS = 86_400_000
CHUNK = 100_000
BATCHED = {"batching_enabled": True, "batching_max_publish_delay_ms": 100, "batching_max_messages": 7}
ALONE = {"batching_enabled": False}
KINDS: dict[str, dict[str, Any]] = {
    "plain": ALONE,
    "lz4": {**BATCHED, "compression_type": pulsar.CompressionType.LZ4},
    "zlib": {**BATCHED, "compression_type": pulsar.CompressionType.ZLib},
    "zstd": {**BATCHED, "compression_type": pulsar.CompressionType.ZSTD},
    "snappy": {**ALONE, "compression_type": pulsar.CompressionType.SNAPPY},
    "chunked": {**ALONE, "chunking_enabled": True, "compression_type": pulsar.CompressionType.LZ4},
}


class Seen(NamedTuple):
    """A message as a reader gives it."""

    id: tuple[int, int, int]
    key: str
    ordering_key: str
    properties: dict[str, str]
    value: bytes
    publish_ms: int
    event_ms: int


class Read(NamedTuple):
    """The result of `trueup read -o json`."""

    code: int
    messages: list[Seen]
    tiers: list[str]
    errors: str


@pytest.fixture(scope="module")
def cluster(new_root: Callable[[], Path]) -> Iterator[SandboxPulsar]:
    settings = {
        "managedLedgerMaxEntriesPerLedger": PER_LEDGER, "managedLedgerOffloadDeletionLagMs": KEEPS_MS,
        "maxMessageSize": CHUNK,
    }  # fmt: skip
    with SandboxPulsar(new_root(), settings=settings, tiered=True) as made:
        made.up()
        yield made


@pytest.fixture(scope="module")
def client(cluster: SandboxPulsar) -> Iterator[pulsar.Client]:
    made = pulsar.Client(cluster.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield made
    made.close()


@pytest.fixture(scope="module")
def store(cluster: SandboxPulsar) -> Any:
    return boto3.client(
        "s3", endpoint_url=cluster.objects.endpoint, region_name=REGION, aws_access_key_id="x",
        aws_secret_access_key="y",
    )  # fmt: skip


@pytest.fixture(scope="module")
def pairs(cluster: SandboxPulsar) -> Iterator[list[str]]:
    """The configuration as options."""
    values = {
        "cluster.zookeeper": cluster.zookeeper.address, "stores.archive.bucket": BUCKET,
        "stores.archive.region": REGION, "stores.archive.endpoint": cluster.objects.endpoint,
        "stores.archive.key_env": "READS_KEY", "stores.archive.secret_env": "READS_SECRET",
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("READS_KEY", "id")
        environment.setenv("READS_SECRET", "secret")
        yield [word for name, value in values.items() for word in ("--set", f"{name}={value}")]


@pytest.fixture
def trueup(pairs: list[str], capsys: pytest.CaptureFixture[str]) -> Callable[..., Read]:
    def run(topic: str, *words: str) -> Read:
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


def write(client: pulsar.Client, topic: str, numbers: range, **options: Any) -> None:
    producer = client.create_producer(f"persistent://{NAMESPACE}/{topic}", block_if_queue_full=True, **options)
    size = 3 * CHUNK if options.get("chunking_enabled") else 200
    for number in numbers:
        content = b"%d:" % number + (number.to_bytes(4, "big") * size)[:size]
        more: dict[str, Any] = {"partition_key": f"key {number}"} if number % 3 else {}
        if number % 5 == 0:
            more |= {"ordering_key": f"order {number}", "event_timestamp": 1_700_000_000_000 + number}
        if number == numbers[-1]:
            producer.flush()  # the last entry proves that all before it are confirmed
        producer.send_async(content, lambda *_: None, properties={"number": str(number), "umlaut": "ä"}, **more)
    producer.flush()
    producer.close()


def as_pulsar(client: pulsar.Client, topic: str) -> list[Seen]:
    """All messages of a topic as Pulsar's own reader gives them."""
    reader = client.create_reader(f"persistent://{NAMESPACE}/{topic}", pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        m = reader.read_next(30_000)
        i = m.message_id()
        where = i.ledger_id(), i.entry_id(), i.batch_index()
        found.append(
            Seen(where, m.partition_key(), m.ordering_key(), m.properties(), m.data(), m.publish_timestamp(),
                 m.event_timestamp())
        )  # fmt: skip
    reader.close()
    return found


@pytest.fixture(scope="module")
def written(cluster: SandboxPulsar, client: pulsar.Client) -> dict[str, list[Seen]]:
    """Topics of every kind, all of whose ledgers but the open one are also offloaded, with their messages."""
    for name, options in KINDS.items():
        write(client, name, range(COUNT if name != "chunked" else 12), **options)
        unload(cluster, f"{NAMESPACE}/{name}")
        write(client, name, range(1_000, 1_003), **ALONE)
        offload(cluster, f"{NAMESPACE}/{name}")
    return {name: confirmed(as_pulsar(client, name)) for name in KINDS}


def confirmed(messages: list[Seen]) -> list[Seen]:
    """Without the last entry of the open ledger: only the writer knows that it is confirmed until it writes again."""
    return messages[:-1]


def last_ledger(messages: list[Seen]) -> int:
    return messages[-1].id[0]


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
    cluster: SandboxPulsar, written: dict[str, list[Seen]], trueup: Callable[..., Read]
) -> None:
    cluster.kill("broker")
    assert [trueup(kind).messages == written[kind] for kind in KINDS] == [True] * len(KINDS)


def test_the_other_bookie_goes_on_when_one_is_down(
    cluster: SandboxPulsar, written: dict[str, list[Seen]], trueup: Callable[..., Read]
) -> None:
    cluster.kill("bookie1")
    assert trueup("lz4").messages == written["lz4"]


def test_tiered_storage_goes_on_when_all_bookies_are_down(
    cluster: SandboxPulsar, written: dict[str, list[Seen]], trueup: Callable[..., Read]
) -> None:
    cluster.kill("bookie2")
    offloaded = [message for message in written["lz4"] if message.id[0] != last_ledger(written["lz4"])]
    found = trueup("lz4")
    for name in ("bookie1", "bookie2"):
        cluster.start(name)
    assert (found.code, found.messages, {*found.tiers}) == (codes.UNREACHABLE, offloaded, {"tiered"})


def test_bookies_go_on_when_the_store_is_down(
    cluster: SandboxPulsar, written: dict[str, list[Seen]], trueup: Callable[..., Read]
) -> None:
    cluster.kill("objects")  # its objects are in memory: no later test can read them
    found = trueup("plain", "--priority", "tiered-storage-first")
    assert (found.messages, {*found.tiers}) == (written["plain"], {"bookkeeper"})
