"""The generic pump between two in-memory clusters: cases that the conformance suite cannot produce."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import ClassVar

import pytest

from tests.conformance import hooks
from tests.conformance.harness import LONG_AGO_MS, POISON, Harness, Written, contents, numbered, untrue
from tests.conformance.memory import CompletedWrite, MemoryCluster, MemoryLink, MemoryReader, MemoryTails, MemoryWriter
from trueup.connectors.contract import Lease, LogId, Position
from trueup.connectors.replication import pump
from trueup.connectors.replication.ports import Columns, Read, SystemPorts
from trueup.connectors.replication.ports import Written as Result
from trueup.connectors.replication.pump import Pump
from trueup.connectors.replication.tail import Bounds, TailSearch
from trueup.connectors.replication.track import Lane, LogTrack
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


class Fails(MemoryReader):
    """A source that fails to respond to the second read."""

    def poll(self, most: int, wait_s: float) -> dict[LogId, Read]:
        if any(self._places.values()):
            raise Retry("records", "no response", "ask again")
        return super().poll(most, wait_s)


class Expiring(MemoryReader):
    """A source that deleted records 10 to 39 before they were read, and whose start does not show it yet."""

    def _read(self, log: LogId, offset: int, most: int) -> Read:
        if 10 <= offset < 40:
            return Read(Columns(), 40, lost=40 - offset)
        return super()._read(log, offset, min(most, 10 - offset) if offset < 10 else most)


class Damaged(MemoryReader):
    """A source whose record 5 cannot be read as it was written."""

    def _read(self, log: LogId, offset: int, most: int) -> Read:
        read = super()._read(log, offset, 6 - offset if offset < 6 else most)
        return read._replace(refused="damaged") if offset < 6 == read.next else read


class Placed(MemoryReader):
    """A source that distinguishes a record from others with its offset."""

    def _read(self, log: LogId, offset: int, most: int) -> Read:
        read = super()._read(log, offset, most)
        return read._replace(place=10 * read.next) if read.records.offsets else read


class OneAway(MemoryReader):
    """A source of which one server is down: its topics' bounds are unknown."""

    away: ClassVar[set[str]] = set()

    def bounds(self, logs: Iterable[LogId]) -> dict[LogId, Bounds | TrueupError]:
        down = Retry("a server", "none", "start it")
        return {log: down if log.topic in self.away else found for log, found in super().bounds(logs).items()}


class Clock:
    """A clock that is late by the time for which nothing responds."""

    late_s: ClassVar[float] = 0.0

    @classmethod
    def monotonic(cls) -> float:
        return time.monotonic() + cls.late_s


class OneHangs(MemoryReader):
    """A source of which one server does not respond for 3 seconds of `Clock`."""

    away: ClassVar[set[str]] = set()
    asked: ClassVar[list[LogId]] = []

    def bounds(self, logs: Iterable[LogId]) -> dict[LogId, Bounds | TrueupError]:
        found = super().bounds(logs)
        for log in found:
            if log.topic in self.away:
                self.asked.append(log)
                Clock.late_s += 3.0
                found[log] = Retry("an answer", "none", "wait")
        return found


class TargetAway(MemoryWriter):
    """A target of which one server is down."""

    away: ClassVar[set[str]] = set()

    def bounds(self, logs: Iterable[LogId]) -> dict[LogId, Bounds | TrueupError]:
        down = Retry("a server", "none", "start it")
        return {log: down if log.topic in self.away else found for log, found in super().bounds(logs).items()}


class TailsRefused(MemoryTails):
    """Tails of which some topics may not be read."""

    def run(self, searches: Mapping[LogId, TailSearch]) -> dict[LogId, TrueupError]:
        wrong = {log: Stop("a right", "none", "grant it") for log in searches if log.topic in TargetRefused.topics}
        return super().run({log: one for log, one in searches.items() if log not in wrong}) | wrong


class TargetRefused(MemoryWriter):
    """A target whose tails of ``topics`` may not be read."""

    topics: ClassVar[set[str]] = set()

    def tails(self) -> MemoryTails:
        return TailsRefused(self.link)


class Step(CompletedWrite):
    """A write whose steps are remembered."""

    def __init__(self, steps: list[str], write: Callable[[], Mapping[LogId, Result]]) -> None:
        super().__init__(write)
        self._steps = steps

    def send(self) -> None:
        self._steps.append("send")
        super().send()

    def written(self) -> Mapping[LogId, Result]:
        self._steps.append("written")
        return super().written()


class Steps(MemoryWriter):
    """A target that remembers the steps of its writes."""

    steps: ClassVar[list[str]] = []

    def prepare(self, batches: Mapping[LogId, Columns]) -> CompletedWrite:
        self.steps.append("prepare")
        return Step(self.steps, partial(self.write, batches))


class LosesAnswers(MemoryWriter):
    """A target whose response to the second write is lost."""

    asked: ClassVar[list[int]] = []

    def write(self, batches: Mapping[LogId, Columns]) -> dict[LogId, Result]:
        found = super().write(batches)
        self.asked.append(1)
        return found if len(self.asked) != 2 else {log: Result((), error=Retry("it", "none", "")) for log in batches}


def harness_of(reader: type[MemoryReader], writer: type[MemoryWriter] = MemoryWriter) -> Iterator[Harness]:
    east, west = MemoryCluster("east"), MemoryCluster("west")
    yield Harness(east, west, "records", "", Pump(lambda _system: SystemPorts(reader, writer)))
    east.kill()
    west.kill()


@pytest.fixture
def harness() -> Iterator[Harness]:
    yield from harness_of(MemoryReader)


@pytest.fixture
def unsure() -> Iterator[Harness]:
    yield from harness_of(Unsure)


@pytest.fixture
def expiring() -> Iterator[Harness]:
    yield from harness_of(Expiring)


@pytest.fixture
def damaged() -> Iterator[Harness]:
    yield from harness_of(Damaged)


@pytest.fixture
def placed() -> Iterator[Harness]:
    yield from harness_of(Placed)


@pytest.fixture
def one_away() -> Iterator[Harness]:
    yield from harness_of(OneAway)


@pytest.fixture
def target_refused() -> Iterator[Harness]:
    yield from harness_of(MemoryReader, TargetRefused)


@pytest.fixture
def one_hangs() -> Iterator[Harness]:
    yield from harness_of(OneHangs)


@pytest.fixture
def fails() -> Iterator[Harness]:
    yield from harness_of(Fails)


@pytest.fixture
def steps() -> Iterator[Harness]:
    yield from harness_of(MemoryReader, Steps)


@pytest.fixture
def loses_answers() -> Iterator[Harness]:
    yield from harness_of(MemoryReader, LosesAnswers)


@pytest.fixture
def target_away() -> Iterator[Harness]:
    yield from harness_of(MemoryReader, TargetAway)


def test_what_was_read_is_read_again_when_an_end_fails_before_it_is_written(unsure: Harness) -> None:
    topic = unsure.topic()
    unsure.write("east", topic, {0: numbered(2_500)})
    copier = unsure.connector.open(unsure.lease(topic))
    with pytest.raises(Retry):
        copier.copy(1e12)
    copier.close()
    unsure.connector = Pump(lambda _system: SystemPorts(MemoryReader, MemoryWriter))
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


def test_records_that_the_source_deleted_before_they_were_read_are_counted_as_lost(expiring: Harness) -> None:
    topic = expiring.topic()
    expiring.write("east", topic, {0: numbered(100)})
    copy = expiring.copy(expiring.lease(topic)).to_the_end()
    assert contents(expiring.read("west", topic)) == [*numbered(10), *numbered(60, 40)]
    assert (copy.totals["copied"], copy.totals["lost"]) == (70, 30)


def test_a_position_tells_the_record_before_it_from_others_with_its_offset(placed: Harness) -> None:
    topic = placed.topic()
    placed.write("east", topic, {0: numbered(50)})
    copy = placed.copy(placed.lease(topic)).to_the_end()
    [row] = copy.rows.values()
    [unchanged] = copy.next_lease().to_the_end().rows.values()
    found = [(each.position.offset, each.position.resume_state["place"]) for each in (row, unchanged)]
    assert found == [(50, 500), (50, 500)]


def test_a_position_that_a_successor_found_further_on_tells_no_record(placed: Harness) -> None:
    topic = placed.topic()
    placed.write("east", topic, {0: numbered(50)})
    copy = placed.copy(placed.lease(topic)).to_the_end()
    [held] = copy.lease.assignments
    old = held._replace(position=Position(20, {"end": 20, "place": 200}))
    with closing(placed.connector.open(replace(copy.lease, assignments=(old,)))) as copier:
        [row] = copier.progress()
    assert (row.position.offset, "place" in row.position.resume_state) == (50, False)


def test_other_logs_are_copied_while_the_server_of_one_is_down(one_away: Harness) -> None:
    there, away = one_away.topic(), one_away.topic()
    for topic in (there, away):
        one_away.write("east", topic, {0: numbered(500)})
    OneAway.away = {away}
    held = tuple(one_away.assignment(topic) for topic in (there, away))
    copier = one_away.connector.open(one_away.lease(there, assignments=held))
    copier.copy(1e12, lambda: len(one_away.read("west", there)) < 500)
    rows = {row.source.topic: row for row in copier.progress()}
    OneAway.away = set()
    copier.copy(1e12, lambda: len(one_away.read("west", away)) < 500)
    copier.close()
    assert ("expected a server" in rows[away].error, rows[away].stopped, rows[there].error) == (True, False, "")
    assert [contents(one_away.read("west", topic)) for topic in (there, away)] == [numbered(500)] * 2


def test_a_target_that_may_not_be_read_stops_no_other(target_refused: Harness) -> None:
    there, refused = target_refused.topic(), target_refused.topic()
    for topic in (there, refused):
        target_refused.write("east", topic, {0: numbered(500)})
    TargetRefused.topics = {refused}
    held = tuple(target_refused.assignment(topic) for topic in (there, refused))
    copy = target_refused.copy(target_refused.lease(there, assignments=held)).to_the_end()
    rows = {row.source.topic: row for row in copy.rows.values()}
    assert (rows[refused].stopped, "grant it" in rows[refused].error, rows[there].error) == (True, True, "")
    assert [len(target_refused.read("west", topic)) for topic in (there, refused)] == [500, 0]


def test_a_target_that_lost_records_is_noticed_after_it_could_not_be_read(target_refused: Harness) -> None:
    topic = target_refused.topic()
    target_refused.write("east", topic, {0: numbered(500)})
    first = target_refused.copy(target_refused.lease(topic)).to_the_end()
    target_refused.remake("west", topic)
    TargetRefused.topics = {topic}
    unread = first.next_lease().to_the_end()
    TargetRefused.topics = set()
    [row] = unread.next_lease().to_the_end().rows.values()
    assert (row.stopped, "recreated or lost records" in row.error) == (True, True)


def test_a_server_that_hangs_does_not_take_the_time_of_other_logs(
    one_hangs: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pump, "time", SimpleNamespace(**{**vars(time), "monotonic": Clock.monotonic}))
    there, away = one_hangs.topic(), one_hangs.topic()
    for topic in (there, away):
        one_hangs.write("east", topic, {0: numbered(10)})
    OneHangs.away, OneHangs.asked = {away}, []
    held = tuple(one_hangs.assignment(topic) for topic in (there, away))
    with closing(one_hangs.connector.open(one_hangs.lease(there, assignments=held))) as copier:
        asked = []
        for _ in range(5):  # leases of 9 seconds; one attempt is 3 of them
            copier.copy(1e12, lambda: False)
            asked.append(len(OneHangs.asked))
            Clock.late_s += 9.0
    assert asked == [2, 2, 2, 2, 3], "when it opens, then once beside the others, and again after 30 seconds"


def test_a_log_whose_server_hung_rests_for_longer_than_the_attempt_took(harness: Harness) -> None:
    track = LogTrack(harness.assignment(harness.topic()), Lane(harness.west.log("t", 0)), 0)
    rests = list[float]()
    for known, took_s in ((False, 0.0), (False, 3.0), (False, 10.0), (True, 10.0)):
        track.known = known
        track.rest(100.0, 100.0 + took_s)
        rests.append(track.again_s - 100.0 - took_s)
    assert rests == [0.5, 30.0, 60.0, 0.5]


def test_after_a_lost_response_it_is_unknown_where_the_next_record_is(harness: Harness) -> None:
    track = LogTrack(harness.assignment(harness.topic()), Lane(harness.west.log("t", 0)), 0)
    track.known, track.lane.next, track.lane.clear = True, 5, 7
    before = track.progress(0).target_end
    track.miss(Retry("it", "none", ""))
    assert (before, track.progress(0).target_end) == (7, -1)


def test_how_far_a_log_is_behind_shows_while_the_server_of_its_target_is_down(target_away: Harness) -> None:
    there, away = target_away.topic(), target_away.topic()
    target_away.write("east", away, {0: numbered(500)})
    TargetAway.away = {away}
    held = tuple(target_away.assignment(topic) for topic in (there, away))
    with closing(target_away.connector.open(target_away.lease(there, assignments=held))) as copier:
        [row] = [row for row in copier.progress() if row.source.topic == away]
    assert ("expected a server" in row.error, row.source_end) == (True, 500)


def test_a_log_whose_target_is_away_when_its_first_lease_opens_goes_on_after_earlier_copies(
    target_away: Harness,
) -> None:
    there, away = target_away.topic(), target_away.topic()
    target_away.write("east", away, {0: numbered(100)})
    target_away.copy(target_away.lease(away)).to_the_end()
    target_away.write("east", away, {0: numbered(100, 100)})
    TargetAway.away = {away}
    late = target_away.assignment(away)._replace(start=200)
    lease = target_away.lease(there, assignments=(target_away.assignment(there), late))
    with closing(target_away.connector.open(lease)) as copier:
        [position] = [row.position for row in copier.progress() if row.source.topic == away]
    TargetAway.away = set()
    target_away.copy(replace(lease, assignments=(late._replace(position=position),))).to_the_end()
    assert (position, contents(target_away.read("west", away))) == (Position(), numbered(200))


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
        numbered(1_500, name=b"one "),
        numbered(1_500, name=b"other "),
    ]
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


def test_a_resume_does_not_read_what_others_wrote_while_the_link_was_idle(harness: Harness) -> None:
    topic = harness.topic()
    harness.write("east", topic, {0: numbered(50)})
    with closing(harness.connector.open(harness.lease(topic))) as copier:
        copier.copy(time.monotonic() + 0.3)
        harness.write("west", topic, {0: numbered(5, name=b"foreign")})
        copier.copy(time.monotonic() + 0.3)
        [row] = copier.progress()
    assert row.position.resume_state["end"] == 55


def test_a_transform_changes_records_and_leaves_some_out(harness: Harness) -> None:
    topic = harness.topic()
    harness.write("east", topic, {0: numbered(100)})
    copy = harness.copy(harness.lease(topic, transform=f"{TRANSFORMS}even_shouted")).to_the_end()
    wanted = [each._replace(value=(each.value or b"").upper()) for each in numbered(100)[::2]]
    assert (contents(harness.read("west", topic)), copy.totals["filtered"]) == (wanted, 50)


@pytest.mark.parametrize("transform", ["true_at_five", "text_at_five"])
def test_a_transform_that_returns_no_record_stops_its_log_before_it(harness: Harness, transform: str) -> None:
    topic = harness.topic()
    harness.write("east", topic, {0: numbered(10)})
    [row] = harness.copy(harness.lease(topic, transform=TRANSFORMS + transform)).to_the_end().rows.values()
    assert (row.stopped, row.position.offset) == (True, 5)


def test_the_copy_goes_on_behind_a_record_that_a_hook_takes_from_a_transform(harness: Harness) -> None:
    topic, hook = harness.topic(), "tests.conformance.hooks:handle"
    harness.write("east", topic, {0: numbered(10)})
    hooks.seen.clear()
    lease = harness.lease(topic, transform=f"{TRANSFORMS}fail_at_five", failures="hook", hook=hook)
    copy = harness.copy(lease).to_the_end()
    assert contents(harness.read("west", topic)) == [*numbered(5), *numbered(4, 6)]
    assert ([failure.offset for failure in hooks.seen], copy.totals["dismissed"]) == ([5], 1)


def test_a_dead_letter_has_the_present_as_timestamp_and_that_of_its_record_as_header(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pump, "time", SimpleNamespace(**{**vars(time), "time": lambda: 1_800_000_000.5}))
    topic, letters = harness.narrow_topic(), harness.topic()
    harness.write("east", topic, {0: [POISON._replace(timestamp=LONG_AGO_MS)]})
    harness.copy(harness.lease(topic, failures="dead-letter", dead_letters=letters)).to_the_end()
    with closing(MemoryLink(harness.west.endpoint())) as link:
        [letter] = link.call("all", harness.west.log(letters, 0))
    kept = dict(letter.headers)["trueup-failed-timestamp"]
    assert (letter.stamp, kept) == (1_800_000_000_500, b"%d" % LONG_AGO_MS)


def test_a_record_that_the_reader_refuses_stops_its_log_after_those_before_it(damaged: Harness) -> None:
    topic = damaged.topic()
    damaged.write("east", topic, {0: numbered(10)})
    [row] = damaged.copy(damaged.lease(topic)).to_the_end().rows.values()
    assert contents(damaged.read("west", topic)) == numbered(5)
    assert (row.stopped, "offset 5" in row.error, "damaged" in row.error) == (True, True, True)


def test_the_copy_goes_on_behind_a_record_that_the_reader_refuses(damaged: Harness) -> None:
    topic, hook = damaged.topic(), "tests.conformance.hooks:handle"
    damaged.write("east", topic, {0: numbered(10)})
    hooks.seen.clear()
    copy = damaged.copy(damaged.lease(topic, failures="hook", hook=hook)).to_the_end()
    assert contents(damaged.read("west", topic)) == [*numbered(5), *numbered(4, 6)]
    found = [(failure.offset, failure.reason) for failure in hooks.seen]
    assert (found, copy.totals["dismissed"]) == ([(5, "damaged")], 1)


def test_records_are_read_and_prepared_while_a_write_is_in_flight(
    steps: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pump, "BATCH", 100)
    topic = steps.topic()
    steps.write("east", topic, {0: numbered(300)})
    Steps.steps.clear()
    with closing(steps.connector.open(steps.lease(topic))) as copier:  # in one call, whose end waits for the write
        copier.copy(1e12, lambda: steps.west.end(steps.west.log(topic, 0)) < 300)
    assert Steps.steps == ["prepare", "send", *("prepare", "written", "send") * 2, "written"]
    assert contents(steps.read("west", topic)) == numbered(300)


def test_what_was_prepared_behind_a_lost_response_is_not_sent(
    loses_answers: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pump, "BATCH", 100)
    topic = loses_answers.topic()
    loses_answers.write("east", topic, {0: numbered(500)})
    LosesAnswers.asked.clear()
    copy = loses_answers.copy(loses_answers.lease(topic)).to_the_end()
    assert contents(loses_answers.read("west", topic)) == numbered(500)
    assert (copy.totals["copied"], copy.totals["repeated"]) == (500, 0)


def test_what_was_prepared_behind_a_record_that_a_hook_takes_is_read_again(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pump, "BATCH", 10)
    topic, hook = harness.topic(), "tests.conformance.hooks:handle"
    harness.write("east", topic, {0: numbered(50)})
    lease = harness.lease(topic, transform=f"{TRANSFORMS}fail_at_five", failures="hook", hook=hook)
    harness.copy(lease).to_the_end()
    assert contents(harness.read("west", topic)) == [*numbered(5), *numbered(44, 6)]


def test_the_results_of_a_write_in_flight_count_when_the_source_fails(
    fails: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pump, "BATCH", 100)
    topic = fails.topic()
    fails.write("east", topic, {0: numbered(300)})
    with closing(fails.connector.open(fails.lease(topic))) as copier:
        with pytest.raises(Retry):
            copier.copy(1e12)
        [row] = copier.progress()
    assert (row.position.offset, row.copied, len(fails.read("west", topic))) == (100, 100, 100)


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
