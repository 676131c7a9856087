"""The generic pump between two in-memory clusters: cases that the conformance suite cannot produce."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from tests.conformance import hooks
from tests.conformance.harness import Harness, Written, contents, numbered, untrue
from tests.conformance.memory import SYSTEM, MemoryCluster, MemoryReader, MemoryWriter
from trueup.connectors.contract import Lease, LogId
from trueup.connectors.replication.ports import Medium
from trueup.connectors.replication.pump import Pump
from trueup.state.common.errors import Retry, Stop, TrueupError

TRANSFORMS = "tests.conformance.transforms:"


class Unsure(MemoryReader):
    """A source that fails to respond once, after a read."""

    def __init__(self, lease: Lease) -> None:
        super().__init__(lease)
        self._asked = 0

    def unsure(self, logs: Iterable[LogId]) -> dict[LogId, TrueupError]:
        self._asked += 1
        if self._asked == 3:
            raise Retry("an answer", "none", "ask again")
        return super().unsure(logs)


def harness_of(reader: type[MemoryReader]) -> Iterator[Harness]:
    east, west = MemoryCluster("east"), MemoryCluster("west")
    yield Harness(east, west, "records", "", Pump({SYSTEM: Medium(reader, MemoryWriter)}))
    east.kill()
    west.kill()


@pytest.fixture
def harness() -> Iterator[Harness]:
    yield from harness_of(MemoryReader)


@pytest.fixture
def unsure() -> Iterator[Harness]:
    yield from harness_of(Unsure)


def test_what_was_read_is_read_again_when_an_end_fails_before_it_is_written(unsure: Harness) -> None:
    topic = unsure.topic()
    unsure.write("east", topic, {0: numbered(2_500)})
    copier = unsure.connector.open(unsure.lease(topic))
    with pytest.raises(Retry):
        copier.copy(1e12)
    copier.close()
    unsure.connector = Pump({SYSTEM: Medium(MemoryReader, MemoryWriter)})
    unsure.copy(unsure.lease(topic)).to_the_end()
    assert contents(unsure.read("west", topic)) == numbered(2_500)


def test_the_same_copier_goes_on_after_that(unsure: Harness) -> None:
    topic = unsure.topic()
    unsure.write("east", topic, {0: numbered(2_500)})
    copier, end = unsure.connector.open(unsure.lease(topic)), unsure.west.log(topic, 0)
    with pytest.raises(Retry):
        copier.copy(1e12)
    copier.copy(1e12, lambda: unsure.west.end(end) < 2_500)
    copier.close()
    assert contents(unsure.read("west", topic)) == numbered(2_500)


def test_topics_copied_into_one_log_stay_in_order_and_distinguishable(harness: Harness) -> None:
    one, other, into = (harness.topic() for _ in range(3))
    harness.write("east", one, {0: numbered(1_500, name=b"one ")})
    harness.write("east", other, {0: numbered(1_500, name=b"other ")})
    target = harness.west.log(into, 0)
    held = tuple(harness.assignment(topic)._replace(target=target) for topic in (one, other))
    first = harness.copy(harness.lease(one, assignments=held)).to_the_end()
    again = harness.copy(harness.lease(one, assignments=held)).to_the_end()
    there = contents(harness.read("west", into))
    assert [[each for each in there if (each.key or b"").startswith(name)] for name in (b"one", b"other")] == [
        numbered(1_500, name=b"one "), numbered(1_500, name=b"other "),
    ]  # fmt: skip
    assert (len(there), first.totals["copied"], again.totals["copied"]) == (3_000, 3_000, 0)


def test_runs_between_records_of_others_are_exact(harness: Harness) -> None:
    topic = harness.topic()
    harness.write("east", topic, {0: numbered(50)})
    copy = harness.copy(harness.lease(topic)).to_the_end()
    harness.write("west", topic, {0: numbered(5, name=b"foreign")})
    harness.write("east", topic, {0: numbered(50, 50)})
    following = copy.next_lease().to_the_end()
    runs = [*copy.runs, *following.runs]
    assert (untrue(runs, harness.read("east", topic), harness.read("west", topic)), len(runs)) == ([], 2)


def test_a_transform_changes_records_and_leaves_some_out(harness: Harness) -> None:
    topic = harness.topic()
    harness.write("east", topic, {0: numbered(100)})
    copy = harness.copy(harness.lease(topic, transform=f"{TRANSFORMS}even_shouted")).to_the_end()
    wanted = [each._replace(value=(each.value or b"").upper()) for each in numbered(100)[::2]]
    assert (contents(harness.read("west", topic)), copy.totals["filtered"]) == (wanted, 50)


def test_the_copy_goes_on_behind_a_record_that_a_hook_takes_from_a_transform(harness: Harness) -> None:
    topic, hook = harness.topic(), "tests.conformance.hooks:handle"
    harness.write("east", topic, {0: numbered(10)})
    hooks.seen.clear()
    lease = harness.lease(topic, transform=f"{TRANSFORMS}fail_at_five", failures="hook", hook=hook)
    copy = harness.copy(lease).to_the_end()
    assert contents(harness.read("west", topic)) == [*numbered(5), *numbered(4, 6)]
    assert ([failure.offset for failure in hooks.seen], copy.totals["dismissed"]) == ([5], 1)


def test_a_link_from_a_cluster_to_itself_is_refused(harness: Harness) -> None:
    lease = harness.lease(harness.topic())
    with pytest.raises(Stop, match="two clusters"):
        harness.connector.open(replace(lease, target=lease.source))


def test_a_source_that_ends_before_the_copy_stops_it(harness: Harness) -> None:
    topic = harness.topic()
    harness.write("east", topic, {0: numbered(100)})
    copy = harness.copy(harness.lease(topic)).to_the_end()
    harness.remake("east", topic)
    harness.write("east", topic, {0: [Written(b"new", b"new", 1)]})
    again = copy.next_lease().to_the_end()
    [row] = again.rows.values()
    assert (row.stopped, "recreated or lost records" in row.error) == (True, True)
