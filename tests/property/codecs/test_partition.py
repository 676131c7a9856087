"""For any sequence of sends, responses, lost messages and crashes of the copier: the target has every expected record
exactly once, in order, and the offset map contains its position."""

from collections import deque
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trueup.connectors.contract import Assignment, Endpoint, Lease, LogId, Position, Run
from trueup.connectors.kafka.client.fetch_produce import Fetched
from trueup.connectors.kafka.protocol.record_batch import (
    CODEC,
    HEADER_BYTES,
    SEQUENCES,
    BatchHeader,
    assemble,
    digest,
    header_of,
)
from trueup.connectors.kafka.replication.batches.partition import Differs, PartitionStatus, SentBatch, Track
from trueup.connectors.kafka.replication.batches.position import BatchPosition, ahead, following
from trueup.connectors.kafka.replication.batches.resume import CopiedBatch, ResumePoint
from trueup.connectors.kafka.replication.batches.stored import UncountedRecords
from trueup.state.common.errors import Retry, Stop
from trueup.state.replication.provenance import producer_id, tag_of
from trueup.streams.replication.links.checkpoints import Copy

FLOW, EAST, WEST, NORTH = 9, 0, 1, 2
WHERE = LogId("t", 0)
LAST_BATCHES, IN_FLIGHT = 5, 8
LOCAL, FROM_NORTH, FROM_TARGET = 3, producer_id(1 << NORTH, 4), producer_id(1 << WEST, 5)


class Target:
    """A partition as a broker implements it: it checks sequences and recognizes the last five batches of a producer
    (ProducerAppendInfo.java, ProducerStateEntry.java)."""

    def __init__(self) -> None:
        self.log: list[tuple[int, bytes]] = []
        self.end = 0
        self.known: dict[int, deque[tuple[int, int, int]]] = {}

    def append(self, batch: bytes) -> int | None:
        """Offset of the batch; None if its sequence is out of order."""
        header = header_of(batch)
        known = self.known.setdefault(header.producer_id, deque(maxlen=LAST_BATCHES))
        for first, last, offset in known:
            if (first, last) == (header.sequence, header.last_sequence):
                return offset
        if known and following(known[-1][1]) != header.sequence:
            return None
        return self.write(batch, header)

    def write(self, batch: bytes, header: BatchHeader) -> int:
        offset, self.end = self.end, self.end + header.records
        self.log.append((offset, batch))
        self.known.setdefault(header.producer_id, deque(maxlen=LAST_BATCHES)).append(
            (header.sequence, header.last_sequence, offset)
        )
        return offset

    @property
    def last(self) -> dict[int, int]:
        """The last sequence numbers of the link, by producer id."""
        return {p: k[-1][1] for p, k in self.known.items() if (tag := tag_of(p)) and tag.writer_id == FLOW}

    def resume_point(self, track: Track) -> ResumePoint:
        """The resume point that a lookup of the target returns for the track."""
        counts, ours = track.place.counts, self.last
        own: dict[int, deque[CopiedBatch]] = {}
        stored: dict[int, UncountedRecords] = {}
        counted = track.place.floor
        for offset, batch in self.log:
            header = header_of(batch)
            tag = tag_of(header.producer_id)
            if tag and tag.writer_id == FLOW and ahead(header.sequence, counts.get(header.producer_id, 0)) >= 0:
                found = CopiedBatch(
                    offset,
                    header.sequence,
                    header.last_sequence,
                    header.attributes & CODEC,
                    digest(memoryview(batch)),
                    None,
                )
                own.setdefault(header.producer_id, deque()).append(found)
            elif tag and tag.writer_id == FLOW:
                counted = max(counted, offset + header.records)
            if tag and tag.writer_id == FLOW and track.by_record:
                stored.setdefault(header.producer_id, UncountedRecords(counts.get(header.producer_id, 0))).add(
                    header._replace(offset=offset), memoryview(batch), "the target"
                )
        last = {p: batches[-1].last_sequence for p, batches in own.items()} | ours
        beyond = {p: s for p, s in last.items() if ahead(following(s), counts.get(p, 0)) > 0}
        records = {p: stored[p] for p in beyond} if track.by_record else {}
        return ResumePoint(self.end, frozenset(ours), beyond, own, counted, True, records)


def batch_of(offset: int, numbers: Sequence[int], span: int, producer: int, sequence: int) -> bytes:
    """A batch of a source log: records that contain their offset, at the offset deltas ``numbers`` within ``span``."""
    body = b"".join(_record(number, value) for number, value in zip(numbers, _values(offset, numbers), strict=True))
    header = BatchHeader(offset, 0, 0, 2, 0, 0, span - 1, 0, 0, producer, 0, sequence, len(numbers))
    return bytes(assemble(header, body))


def _values(offset: int, numbers: Sequence[int]) -> list[int]:
    return [offset + number for number in numbers]


def _record(delta: int, value: int) -> bytes:
    content = bytes([0, 0, delta * 2, 1, 8]) + value.to_bytes(4, "big") + b"\0"
    return bytes([len(content) * 2]) + content


def values_of(batch: bytes) -> list[int]:
    """The values of a batch whose records have one-byte varints."""
    found, at = [], HEADER_BYTES
    while at < len(batch):
        size = batch[at] >> 1
        found.append(int.from_bytes(batch[at + 6 : at + 10], "big"))
        at += 1 + size
    return found


Shape = tuple[int, tuple[int, ...], int]


@st.composite
def shapes(draw: st.DrawFn) -> list[Shape]:
    """Producer, offset deltas of the records, number of offsets of each batch."""
    made = []
    for _ in range(draw(st.integers(1, 25))):
        span = draw(st.integers(1, 6))
        kept = draw(st.sets(st.integers(0, span - 1), min_size=0 if span > 1 else 1, max_size=span))
        made.append((draw(st.sampled_from((LOCAL, -1, FROM_NORTH, FROM_TARGET))), tuple(sorted(kept)), span))
    return made


def source_log(made: list[Shape]) -> list[bytes]:
    log, offset = [], 0
    for producer, kept, span in made:
        log.append(batch_of(offset, kept, span, producer, 0))
        offset += span
    return log


def new_track(position: Position) -> Track:
    lease = Lease(
        "l",
        Endpoint("east", "e:1", EAST),
        Endpoint("west", "w:1", WEST),
        FLOW,
        "batches",
        (Assignment(WHERE, WHERE, position, 0),),
    )
    return Track(lease.assignments[0], lease)


Claim = tuple[Position, int]
"""A reported position, and the target offset of the next record at the earliest."""


class Copier:
    """A track, its batches in flight, and a target. Each method is one possible event."""

    def __init__(self, log: list[bytes], target: Target, position: Position) -> None:
        self.log, self.target = log, target
        self.track = new_track(position)
        self.track.rewind(target.resume_point(self.track))
        self.flying: deque[SentBatch] = deque()
        self.runs: list[Run] = []
        self.claims: list[Claim] = []
        self.copy = Copy(WHERE, WHERE, 0)
        self.refused = False
        self.start = self.end = 0

    def fetch(self, most: int) -> None:
        if self.track.reached < self.start:
            self.track.skip_to(self.start)
        at = self.track.reached
        found = [batch for batch in self.log if header_of(batch).following > at][:most]
        self.end = max([self.end, *(header_of(batch).following for batch in self.log[-1:])])
        try:
            self.track.accept(Fetched(0, self.end, self.start, (), memoryview(bytearray(b"".join(found)))), at)
        except Differs:
            self.lose_answers(len(self.flying))

    def compact(self, seed: int) -> None:
        """The log cleaner of the source removes records, and batches without any, but none of the last batch."""
        chance, kept = Random(seed), list[bytes]()
        for batch in self.log[:-1]:
            header = header_of(batch)
            left = [value - header.offset for value in values_of(batch) if chance.random() < 0.6]
            if left or chance.random() < 0.5:
                kept.append(batch_of(header.offset, left, header.last_delta + 1, header.producer_id, header.sequence))
        self.log[:] = [*kept, self.log[-1]]

    def retain(self, deleted: int) -> None:
        """The source deletes its first batches, or all of them."""
        if gone := self.log[:deleted]:
            self.start = header_of(gone[-1]).following
            self.end = max(self.end, header_of(self.log[-1]).following)
            del self.log[:deleted]

    def send(self) -> None:
        if self.track.ready and not self.refused and len(self.flying) < IN_FLIGHT:
            self.flying.append(self.track.next())

    def answer(self) -> None:
        """The target appends the oldest batch in flight and acknowledges it."""
        if self.flying:
            entry = self.flying.popleft()
            self.track.flying -= 1
            offset = self.target.append(bytes(entry.batch))
            if offset is None:
                self.refused = True
            else:
                self.track.acknowledge(entry, offset)
            self._look_again()

    def refuse(self) -> None:
        """The target rejects the oldest batch in flight."""
        if self.flying:
            self.flying.popleft()
            self.track.flying -= 1
            self.refused = True
            self._look_again()

    def _look_again(self) -> None:
        if self.refused and not self.flying:
            self.lose_answers(0)

    def lose_answers(self, taken: int) -> None:
        """The connection is lost; the target has appended the first ``taken`` batches in flight."""
        for entry in list(self.flying)[:taken]:
            if self.target.append(bytes(entry.batch)) is None:
                break
        self.track.flying, self.refused = 0, False
        self.flying.clear()
        self.track.rewind(self.target.resume_point(self.track))

    def drain(self) -> None:
        """The end of a lease without anything in flight."""
        if self.flying or not self.track.idle:
            return
        if self.track.drained(self.target.end, self.target.last):
            there = (offset.to_bytes(8, "big") + batch[8:] for offset, batch in self.target.log)
            try:
                self.track.look(memoryview(b"".join(there)))
            except Retry:
                self.lose_answers(0)

    def progress(self) -> Position:
        found = self.track.progress(0, PartitionStatus("", False))
        self.runs += found.runs
        self.copy.take(found, 0)
        self.claims.append((found.position, max(self.copy.map.end, self.copy.map.clear)))
        return found.position


def to_the_end(copier: Copier) -> None:
    for _ in range(1_000):
        copier.fetch(3)
        copier.send()
        copier.answer()
        if copier.track.place.offset == copier.end:
            return
    raise AssertionError("it does not end")


Step = tuple[str, int]
KINDS = ("fetch", "send", "send", "answer", "answer", "lose", "die", "keep", "foreign", "refuse", "drain")


def steps_of(*kinds: str) -> st.SearchStrategy[list[Step]]:
    return st.lists(st.tuples(st.sampled_from(kinds), st.integers(0, 8)), max_size=80)


PLAIN = {
    "catch up": to_the_end,
    "drain": Copier.drain,
    "send": Copier.send,
    "answer": Copier.answer,
    "refuse": Copier.refuse,
}
NUMBERED = {"fetch": Copier.fetch, "lose": Copier.lose_answers, "compact": Copier.compact, "retain": Copier.retain}
STEPS, FORGETFUL = steps_of(*KINDS), steps_of(*KINDS, "forget")


def run(log: list[bytes], steps: list[Step], start: Position, more: Sequence[bytes] = ()) -> tuple[Target, Copier]:
    """``more``: batches that the step "grow" adds to the source."""
    target, coming = Target(), list(more)
    copier = Copier(log, target, start)
    kept = start
    for step, number in steps:
        if step in PLAIN:
            PLAIN[step](copier)
        elif step in NUMBERED:
            NUMBERED[step](copier, number)
        elif step == "forget":
            target.known.clear()
        elif step == "other":  # a second copier, which this one does not know
            to_the_end(Copier(log, target, kept))
            if number > 4 and copier.track.place.counts:  # a copy without any record trusts the leader
                target.known.clear()
        elif step == "grow":
            log += coming[:number]
            del coming[:number]
        elif step == "keep":
            kept = copier.progress()
        elif step == "die":
            late = [bytes(entry.batch) for entry in copier.flying][:number]
            dead, copier = copier, Copier(log, target, kept)
            copier.claims, copier.copy, copier.start, copier.end = dead.claims, dead.copy, dead.start, dead.end
            for batch in late:  # batches of the dead copier arrive after its successor's lookup
                if target.append(batch) is None:
                    break
        else:
            other = batch_of(0, [0], 1, LOCAL, 0)
            target.log.append((target.end, other))
            target.end += 1
    log += coming
    to_the_end(copier)
    copier.progress()
    return target, copier


def values_of_ours(target: Target) -> dict[int, list[int]]:
    """Values by producer id at the target."""
    found: dict[int, list[int]] = {}
    for _, batch in target.log:
        if tag_of(header_of(batch).producer_id):
            found.setdefault(header_of(batch).producer_id, []).extend(values_of(batch))
    return found


def wanted(made: list[Shape], start: int = 0) -> dict[int, list[int]]:
    """Expected values by producer id, from a source offset on."""
    found: dict[int, list[int]] = {}
    offset = 0
    for producer, kept, span in made:
        if producer != FROM_TARGET:
            path = 1 << EAST | (1 << NORTH if producer == FROM_NORTH else 0)
            values = found.setdefault(producer_id(path, FLOW), [])
            values += (offset + number for number in kept if offset + number >= start)
        offset += span
    return {producer: numbers for producer, numbers in found.items() if numbers}


@settings(max_examples=100, deadline=None)
@given(shapes(), STEPS, st.sampled_from((0, SEQUENCES - 7)))
def test_every_record_once_in_order(made: list[Shape], steps: list[Step], first: int) -> None:
    ids = {f"id:{producer_id(path, FLOW):x}": first for path in (1, 5)} if first else {}
    start = Position(0, {"target": 0, **ids}) if first else Position()
    target, _ = run(source_log(made), steps, start)
    assert values_of_ours(target) == wanted(made)


@settings(max_examples=100, deadline=None)
@given(shapes(), STEPS, st.integers(0, 25))
def test_every_record_from_an_offset_on_once_in_order(made: list[Shape], steps: list[Step], start: int) -> None:
    """The offset may be inside a batch."""
    log = source_log(made)
    start = min(start, header_of(log[-1]).following)
    target, _ = run(log, steps, Position(start, {"target": 0}))
    assert values_of_ours(target) == wanted(made, start)


def test_a_batch_is_copied_from_the_position_on() -> None:
    log, target = [batch_of(10 * n, range(10), 10, LOCAL, 0) for n in range(3)], Target()
    copier = Copier(log, target, Position(15, {}, chosen=True))
    to_the_end(copier)
    copier.progress()
    assert (values_of_ours(target), copier.runs) == ({producer_id(1, FLOW): [*range(15, 30)]}, [Run(15, 0, 15)])


@pytest.mark.parametrize("kept", [range(10), (0, 7, 8, 9)], ids=["dense", "compacted"])
@pytest.mark.parametrize("by_record", [False, True])
def test_a_batch_that_was_copied_from_the_position_on_is_recognised(kept: Sequence[int], by_record: bool) -> None:
    log, target, position = [batch_of(0, kept, 10, LOCAL, 0)], Target(), Position(5, {"target": 0})
    to_the_end(Copier(log, target, position))
    log.append(batch_of(10, range(10), 10, LOCAL, 0))
    after = Copier(log, target, position)
    after.track.by_record = by_record
    after.lose_answers(0)
    to_the_end(after)
    assert values_of_ours(target) == {producer_id(1, FLOW): [n for n in kept if n >= 5] + [*range(10, 20)]}


def assert_in_order_and_complete(log: Sequence[bytes], target: Target) -> None:
    """What the source still has is at the target, and each producer's values are there once and in order."""
    there = values_of_ours(target)
    for producer, values in there.items():
        assert values == sorted(set(values)), producer
    live = [(header_of(batch).producer_id, values_of(batch)) for batch in log]
    needed = {value for producer, values in live if producer != FROM_TARGET for value in values}
    assert needed <= {value for values in there.values() for value in values}


@settings(max_examples=100, deadline=None)
@given(shapes(), steps_of("fetch", "send", "send", "answer", "answer", "lose", "crash", "keep", "compact", "foreign"))
def test_what_a_compacted_source_still_has_is_there_once_in_order(made: list[Shape], steps: list[Step]) -> None:
    """The source is compacted at any time, also while the copier is down after a crash."""
    log = source_log(made)
    target, _ = run(log, [("die", 0) if step == "crash" else (step, number) for step, number in steps], Position())
    assert_in_order_and_complete(log, target)


RETAINING = ("fetch", "send", "send", "answer", "answer", "lose", "crash", "keep", "retain", "grow", "foreign", "pause")
PAUSE = [("retain", 99), ("fetch", 0), ("keep", 0), ("die", 0)]
"""The source deletes all records during a lease that finds nothing, and the next lease is of another copier."""


@settings(max_examples=100, deadline=None)
@given(shapes(), shapes(), steps_of(*RETAINING))
@example(
    [(LOCAL, (0, 1), 2)], [(LOCAL, (0, 1), 2)], [("fetch", 1), ("send", 0), ("answer", 0), ("crash", 0), ("pause", 0)]
)
def test_what_a_source_still_has_after_retention_is_there_once_in_order(
    made: list[Shape], more: list[Shape], steps: list[Step]
) -> None:
    """The source deletes records at any time, also those that a killed copier wrote and nobody counted."""
    every = source_log([*made, *more])
    log, coming = every[: len(made)], every[len(made) :]
    events = {"crash": [("die", 0)], "pause": PAUSE}
    target, _ = run(log, [e for step in steps for e in events.get(step[0], [step])], Position(), coming)
    assert_in_order_and_complete(log, target)


def test_a_source_that_was_compacted_during_a_pause_is_copied_on() -> None:
    """The batch that was copied last is not there any more, and neither are some before it."""
    log = [batch_of(10 * n, range(10), 10, LOCAL, 0) for n in range(6)]
    target = Target()
    before = Copier(log[:4], target, Position())
    to_the_end(before)
    cleaned = [batch_of(0, [3], 10, LOCAL, 0), batch_of(20, [1, 9], 10, LOCAL, 0), *log[4:]]
    after = Copier(cleaned, target, Position())
    to_the_end(after)
    assert values_of_ours(target) == {producer_id(1, FLOW): list(range(60))}
    assert after.track.progress(0, PartitionStatus("", False)).skipped == 3


@pytest.mark.parametrize("start", [5, 10, 15])
def test_a_source_that_deleted_records_which_are_not_counted_is_copied_on(start: int) -> None:
    log, target = [batch_of(10 * n, range(10), 10, LOCAL, 0) for n in range(3)], Target()
    to_the_end(Copier(log[:2], target, Position()))
    after = Copier(log[start // 10 :], target, Position())
    after.track.skip_to(start)
    to_the_end(after)
    assert values_of_ours(target) == {producer_id(1, FLOW): list(range(30))}


def test_a_source_that_kept_an_empty_batch_of_records_which_are_not_counted_is_copied_on() -> None:
    log, target = [batch_of(10 * n, range(10), 10, LOCAL, 0) for n in range(3)], Target()
    to_the_end(Copier(log[:2], target, Position()))
    to_the_end(Copier([batch_of(0, [], 10, LOCAL, 0), *log[1:]], target, Position()))
    assert values_of_ours(target) == {producer_id(1, FLOW): list(range(30))}


def test_a_position_behind_deleted_records_is_reported_once_those_of_the_target_are_counted() -> None:
    log, target = [batch_of(10 * n, range(10), 10, LOCAL, 0) for n in range(3)], Target()
    to_the_end(Copier(log[:2], target, Position(0, {"target": 0})))
    after = Copier(log, target, Position(0, {"target": 0}))
    after.track.skip_to(5)
    early = after.progress().offset
    to_the_end(after)
    assert (early, after.progress().offset) == (0, 30)


def test_a_target_with_records_that_the_source_never_had_stops() -> None:
    target = Target()
    to_the_end(Copier([batch_of(10 * n, range(10), 10, LOCAL, 0) for n in range(4)], target, Position()))
    other = [batch_of(100, [0, 1], 3, LOCAL, 0), batch_of(103, range(10), 10, LOCAL, 0)]
    copier = Copier(other, target, Position(100))
    with pytest.raises(Stop, match="set the position"):
        to_the_end(copier)


def found_or_reported(made: list[Shape], steps: list[Step]) -> dict[int, list[int]]:
    """Final values without duplicates; the expected values if a hole was reported instead."""
    try:
        target, _ = run(source_log(made), steps, Position())
    except Stop as error:
        if "never written" not in error.found:
            raise
        return wanted(made)
    return {producer: list(dict.fromkeys(values)) for producer, values in values_of_ours(target).items()}


@settings(max_examples=300, deadline=None)
@given(shapes(), FORGETFUL)
def test_batches_out_of_order_at_a_target_that_forgot_its_producers_are_reported(
    made: list[Shape], steps: list[Step]
) -> None:
    """A batch is rejected, its producer forgotten, the next one appended. Late batches of a dead copier may repeat."""
    assert found_or_reported(made, steps) == wanted(made)


def test_a_hole_is_never_passed_over() -> None:
    target = Target()
    copier = Copier([batch_of(n, [0], 1, LOCAL, 0) for n in range(4)], target, Position())
    copier.fetch(1)
    copier.send()
    copier.answer()
    copier.fetch(3)
    copier.send()
    copier.send()
    copier.refuse()
    target.known.clear()
    copier.answer()
    with pytest.raises(Stop, match=r"offset 1 of .* never written"):
        copier.fetch(3)


@settings(max_examples=60, deadline=None)
@given(shapes(), STEPS)
def test_runs_are_exact(made: list[Shape], steps: list[Step]) -> None:
    lives = [step for step in steps if step[0] != "die"]  # the runs lack what a dead copier knew and did not report
    target, copier = run(source_log(made), lives, Position())
    ours = [(offset, batch) for offset, batch in target.log if tag_of(header_of(batch).producer_id)]
    stands = {offset + n: value for offset, batch in ours for n, value in enumerate(values_of(batch))}
    assert {run.target + n: run.source + n for run in copier.runs for n in range(run.records)} == stands


def untrue(target: Target, claims: list[Claim]) -> list[tuple[str, Claim]]:
    """The reports that put a later record of the copy behind its place at the target."""
    ours = [(offset, batch, header_of(batch)) for offset, batch in target.log if tag_of(header_of(batch).producer_id)]
    places = {value: offset + n for offset, batch, _ in ours for n, value in enumerate(values_of(batch))}
    found = []
    for position, end in claims:
        place = BatchPosition.of(position, 0)
        if any(value >= place.offset and there < end for value, there in places.items()):
            found.append(("end", (position, end)))
        if any(
            offset < place.floor and ahead(following(header.last_sequence), place.counts.get(header.producer_id, 0)) > 0
            for offset, _, header in ours
        ):
            found.append(("floor", (position, end)))
    return found


@settings(max_examples=300, deadline=None)
@given(
    shapes(), st.integers(1, 24), STEPS, steps_of("grow", "other", "forget", "foreign", "drain", "drain", "keep", "die")
)
@example([(LOCAL, (0,), 1)] * 2, 1, [], [("grow", 1), ("other", 0), ("drain", 0), ("keep", 0)])
@example([(LOCAL, (0,), 1)] * 2, 1, [], [("grow", 1), ("other", 5), ("drain", 0), ("keep", 0)])
def test_no_later_record_is_before_a_reported_end(
    made: list[Shape], first: int, steps: list[Step], idle: list[Step]
) -> None:
    """The copier catches up, and is idle while others write and the target forgets producers."""
    log, caught_up = source_log(made), [("catch up", 0), ("forget", 0), ("foreign", 0), ("drain", 0)]
    target, copier = run(log[:first], [*steps, *caught_up, *idle], Position(), log[first:])
    assert untrue(target, copier.claims) == []


def test_a_record_before_one_that_precedes_it_is_reported_with_it() -> None:
    """The target refuses a batch, and appends the next one, of another producer."""
    log, target = [batch_of(n, [0], 1, (LOCAL, FROM_NORTH)[n % 2], 0) for n in range(4)], Target()
    copier = Copier(log[:2], target, Position())
    to_the_end(copier)
    copier.progress()
    copier.log = log
    copier.fetch(2)
    copier.send()
    copier.send()
    copier.refuse()
    copier.answer()
    copier.fetch(1)
    copier.send()
    copier.answer()
    offsets = [copier.progress().offset]
    copier.fetch(1)
    assert (untrue(target, copier.claims), [*offsets, copier.progress().offset]) == ([], [2, 4])
