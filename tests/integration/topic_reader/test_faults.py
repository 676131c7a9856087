"""Copies that are damaged, and topics that change during a read. Each test restores the objects that it damaged."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pulsar
import pytest

from tests.integration.topic_reader.topics import (
    ALONE,
    NAMESPACE,
    PER_LEDGER,
    TIERED_FIRST,
    Seen,
    Start,
    as_pulsar,
    confirmed,
    ids,
    rot,
    write,
)
from trueup.connectors.embedded.processes import wait_until
from trueup.sandbox.forgetting import drop_offloaded, listed, path, session, truncate
from trueup.sandbox.pulsar import BUCKET, SandboxPulsar
from trueup.state.common.errors import Refused
from trueup.state.read_priority.tiers import Tier
from trueup.streams.topic_reader.reader import ReadOptions

pytestmark = [pytest.mark.servers, pytest.mark.timeout(600)]


@contextmanager
def changed(store: Any, ledger: int, change: Callable[[bytes], bytes]) -> Iterator[None]:
    """The data object of a ledger is another one meanwhile."""
    names = [one["Key"] for one in store.list_objects_v2(Bucket=BUCKET)["Contents"]]
    (name,) = (one for one in names if one.endswith(f"-ledger-{ledger}"))
    found = store.get_object(Bucket=BUCKET, Key=name)
    content: bytes = found["Body"].read()
    metadata: Mapping[str, str] = found["Metadata"]
    store.put_object(Bucket=BUCKET, Key=name, Body=change(content), Metadata=metadata)
    yield
    store.put_object(Bucket=BUCKET, Key=name, Body=content, Metadata=metadata)


def without_its_end(content: bytes) -> bytes:
    return content[:-100]


def with_another_bit(content: bytes) -> bytes:
    """In the payload of an entry."""
    at = len(content) * 2 // 3
    return content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]


@pytest.mark.parametrize("change", [without_its_end, with_another_bit])
def test_a_damaged_object_is_read_from_bookies(
    written: dict[str, list[Seen]], store: Any, start: Start, change: Callable[[bytes], bytes]
) -> None:
    ledger = written["plain"][0].id[0]
    with changed(store, ledger, change), start("plain", TIERED_FIRST) as (found, report):
        assert ids(found) == [one.id for one in written["plain"]]
    assert [*report.fallbacks] == [(ledger, Tier.TIERED)]


@pytest.mark.release
def test_a_damaged_replica_is_named_and_the_other_bookie_is_read(
    cluster: SandboxPulsar, client: pulsar.Client, start: Start
) -> None:
    write(client, "rotten", range(2 * PER_LEDGER + 5), **ALONE)
    expected = confirmed(as_pulsar(client, "rotten"))
    for number, entry in ((1, 3), (2, 4)):  # the reader may begin with either bookie
        rot(cluster, number, b"%d:" % entry + entry.to_bytes(4, "big") * 20)
    with start("rotten") as (found, report):
        assert ids(found) == [one.id for one in expected]
    assert report.damages != {}
    rotten = {(cluster.bookies[1].id, 3), (cluster.bookies[2].id, 4)}
    assert {(one.bookie, one.entry) for one in report.damages.values()} <= rotten


def test_ledgers_that_are_trimmed_during_a_read_can_be_skipped(
    cluster: SandboxPulsar, client: pulsar.Client, start: Start
) -> None:
    write(client, "trimmed", range(3 * PER_LEDGER + 5), **ALONE)
    expected, before = confirmed(as_pulsar(client, "trimmed")), listed(cluster, f"{NAMESPACE}/trimmed")
    with start("trimmed", ReadOptions(skip_missing=True)) as (found, report):
        first = next(found)
        gone = truncate(cluster, f"{NAMESPACE}/trimmed")
        with session(cluster.zookeeper.address) as zookeeper:  # the broker deletes them after it changed the list
            wait_until(lambda: not any(zookeeper.exists(path(one)) for one in gone), 180.0, f"no ledgers {gone}")
        rest = ids(found)
    assert [(first.message.ledger, first.message.entry, -1), *rest] == [
        one.id for one in expected if one.id[0] not in report.trimmed
    ]
    assert set(before[1:-1]) <= set(report.trimmed) <= set(before[:-1])


def test_ledgers_that_move_to_tiered_storage_during_a_read_are_read_from_there(
    cluster: SandboxPulsar, client: pulsar.Client, start: Start
) -> None:
    topic = "public/soon/moved"
    cluster.ask("PUT", "namespaces/public/soon")
    cluster.ask("PUT", "namespaces/public/soon/offloadDeletionLagMs", 0)
    write(client, topic, range(3 * PER_LEDGER + 5), **ALONE)
    expected = confirmed(as_pulsar(client, topic))
    with start(topic) as (found, report):
        first = next(found)
        gone = drop_offloaded(cluster, topic)
        with session(cluster.zookeeper.address) as zookeeper:
            wait_until(lambda: not any(zookeeper.exists(path(one)) for one in gone), 180.0, f"no ledgers {gone}")
        rest = ids(found)
    assert ids(iter([first])) + rest == [one.id for one in expected]
    assert report.entries[Tier.TIERED] >= 2 * PER_LEDGER


def test_a_topic_that_is_deleted_during_a_read_ends_it_with_the_reason(
    cluster: SandboxPulsar, client: pulsar.Client, start: Start
) -> None:
    write(client, "deleted", range(3 * PER_LEDGER + 5), **ALONE)
    with start("deleted") as (found, _):
        next(found)
        cluster.ask("DELETE", f"persistent/{NAMESPACE}/deleted?force=true")
        with pytest.raises(Refused, match="it was deleted"):
            ids(found)
