"""Decisions of the records path that need no broker: headers, searches, rates."""

from collections.abc import Sequence

from trueup.connectors.contract import Assignment, Endpoint, Lease, Limits, LogId, Position, Run
from trueup.connectors.replication.headers import MARK, Path, mark_of, prefix_of
from trueup.connectors.replication.ports import Columns
from trueup.connectors.replication.pump import Tagged, Tagging
from trueup.connectors.replication.rate_limit import Rate
from trueup.connectors.replication.tail import Bounds, CopiedRecord, TailSearch
from trueup.connectors.replication.track import END, Lane, LogTrack
from trueup.connectors.replication.transforms import Record
from trueup.state.common.errors import Retry
from trueup.state.replication.provenance import HEADER

ORDERS = LogId("orders", 0)
EAST, WEST = Endpoint("east", "", 0), Endpoint("west", "", 1)
OURS, OTHER = prefix_of(7, ORDERS), b"otherpre"


ASSIGNED = Assignment(ORDERS, ORDERS, Position(), 0)
NOTHING = Position(0, {END: 0})


def track(position: Position = NOTHING) -> LogTrack:
    made = LogTrack(Assignment(ORDERS, ORDERS, position, 0), Lane(ORDERS), 7)
    made.lane.next = 0
    return made


def test_a_partition_that_is_not_looked_up_yet_reports_the_reason() -> None:
    made = track()
    made.miss(Retry("an answer", "none", "wait"))
    lost = [made.progress(0).error for _ in range(2)]
    made.known = True
    answered = [made.progress(0).error for _ in range(2)]
    assert (["none" in error for error in lost], answered[1]) == ([True, True], "")


def test_flows_and_partitions_have_marks_of_their_own() -> None:
    prefixes = {prefix_of(track, LogId(topic, n)) for track in (1, 2) for topic in ("a", "b") for n in (0, 1)}
    assert len(prefixes) == 8


def test_a_mark_is_read_back_and_bytes_of_others_are_none() -> None:
    assert mark_of([("x", b"1"), (MARK, OURS + (5).to_bytes(8, "big"))]) == (OURS, 5)
    assert mark_of([(MARK, b"short")]) is None


def test_a_record_from_a_third_cluster_gets_one_longer_path_and_one_new_mark() -> None:
    mark = (MARK, b"new")
    headers = [("a", b"1"), (HEADER, b"north#2"), (MARK, b"old"), ("b", b"2")]
    assert Path(EAST, WEST, True).tagged(headers, mark) == [("a", b"1"), ("b", b"2"), (HEADER, b"north#2,east#0"), mark]


def test_a_record_from_the_target_or_from_elsewhere_without_forwarding_is_dropped() -> None:
    mark = (MARK, b"new")
    assert Path(EAST, WEST, True).tagged([(HEADER, b"west#1")], mark) is None
    assert Path(EAST, WEST, False).tagged([(HEADER, b"north#2")], mark) is None


def tagged(*headers: Sequence[tuple[str, bytes | None]], transform: str = "") -> Tagged:
    """The rows for records with these headers, at offsets 5, 6, ..."""
    lease = Lease("link", EAST, WEST, 7, "records", (ASSIGNED,), transform=transform)
    offsets = range(5, 5 + len(headers))
    return Tagging(lease).many(
        OURS, Columns(offsets, [None] * len(headers), [b"v"] * len(headers), [1] * len(headers), headers)
    )


def mark(offset: int) -> tuple[str, bytes]:
    return MARK, OURS + offset.to_bytes(8, "big")


def test_every_record_has_its_origin_and_source_offset() -> None:
    assert list(tagged([], [("a", b"1"), ("a", None)]).columns.headers) == [
        [(HEADER, b"east#0"), mark(5)],
        [("a", b"1"), ("a", None), (HEADER, b"east#0"), mark(6)],
    ]


def test_records_of_a_link_are_separated_from_those_produced_at_the_source() -> None:
    found = tagged([("a", b"1")], [(HEADER, b"west#1")], [(HEADER, b"north#2"), mark(99)])
    assert ([*found.columns.offsets], found.dropped) == ([5, 7], 1)
    assert list(found.columns.headers) == [
        [("a", b"1"), (HEADER, b"east#0"), mark(5)],
        [(HEADER, b"north#2,east#0"), mark(7)],
    ]


SEEN: list[Record] = []


def odd_offsets(record: Record) -> Record | None:
    SEEN.append(record)
    return record if record.offset % 2 else None


def test_a_transform_sees_records_as_the_source_has_them_and_leaves_out_what_it_likes() -> None:
    found = tagged([("a", b"1")], [], [], transform=f"{__name__}:odd_offsets")
    assert ([*found.columns.offsets], found.filtered, [*found.columns.values]) == ([5, 7], 1, [b"v", b"v"])
    assert SEEN[0].headers == (("a", b"1"),)


def test_a_search_with_a_floor_reads_the_tail_at_once() -> None:
    assert TailSearch(Bounds(0, 1_000), {OURS: 400}).span() == (400, 1_000)


def test_a_search_without_one_goes_back_in_growing_spans_until_all_are_met() -> None:
    search = TailSearch(Bounds(0, 10_000), {OURS: -1, OTHER: -1})
    spans = []
    while span := search.span():
        spans.append(span)
        met = {
            1: [(OURS, CopiedRecord(7, span[0]))],
            2: [(OURS, CopiedRecord(3, span[0])), (OTHER, CopiedRecord(4, span[0]))],
        }
        search.read(span[0], met.get(len(spans), []))
    assert spans == [(9_936, 10_000), (8_912, 9_936)]
    assert [met.source for met in search.met[OURS]] == [3, 7]


def test_what_a_killed_predecessor_wrote_is_skipped_and_what_stands_twice_is_counted() -> None:
    copied = track(Position(10, {END: 100}))
    copied.found([CopiedRecord(10, 100), CopiedRecord(11, 101), CopiedRecord(10, 102)], ours=False)
    row = copied.progress(0)
    assert (row.position.offset, row.skipped, row.repeated, row.runs) == (12, 2, 1, (Run(10, 100, 2),))


def test_a_rate_grants_no_more_than_its_burst_beyond_time() -> None:
    rate, granted = Rate(Limits(records_per_s=100.0), 0.0), 0
    for step in range(1_000):
        records = rate.records(step / 500, 7)
        rate.take(records, 0)
        granted += records
    assert 190 <= granted <= 100 * 2 + 10


def test_records_that_stand_before_those_acknowledged_are_none_of_the_copy() -> None:
    lane = Lane(LogId("orders", 0))
    lane.next = 100
    assert (lane.extend(9, 10), lane.next) == (-100, 100)
