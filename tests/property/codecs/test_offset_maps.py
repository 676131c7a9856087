"""An offset map compared with a dictionary of all records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup.state.replication.offset_map import HEAD, OffsetMap, digest, from_records

steps = st.lists(st.tuples(st.sampled_from(["copy", "drop", "other"]), st.integers(1, 5)), max_size=14)
starts = st.tuples(st.integers(0, 20), st.integers(0, 20))


def history(steps, start):
    """Runs, the target offset of every record, and the final position of the copy."""
    source, target = start
    runs, places = [], {}
    for what, count in steps:
        if what == "copy":
            runs.append((source, target, count))
            places |= {source + at: target + at for at in range(count)}
        source += count * (what != "other")
        target += count * (what != "drop")
    return runs, places, source


def made(steps, start):
    runs, places, until = history(steps, start)
    return OffsetMap().extend(runs, until, start[0]), places, until


def right_after(places, offset):
    """The offset after the last record before ``offset``; without one, the offset of the first record."""
    before = [place for at, place in places.items() if at < offset]
    return max(before) + 1 if before else min(places.values(), default=None)


@given(steps, starts)
def test_every_offset_that_was_passed_translates_to_the_place_after_what_was_read(steps, start):
    found, places, until = made(steps, start)
    offsets = range(start[0], until + 1)
    assert [found.translate(at).offset for at in offsets] == [right_after(places, at) for at in offsets]


@given(steps, starts, st.integers(-50, 200))
def test_offsets_outside_the_map_have_no_translation(steps, start, offset):
    found, places, until = made(steps, start)
    known = bool(places) and start[0] <= offset <= until
    assert (found.translate(offset).offset is not None) == known == (found.translate(offset).reason == "")


@given(steps, starts)
def test_a_copied_record_translates_there_and_back(steps, start):
    found, places, _ = made(steps, start)
    assert [found.backward(place + 1).offset for place in places.values()] == [at + 1 for at in places]


@given(steps, starts, st.integers(0, 150))
def test_the_way_back_passes_over_nothing_unread(steps, start, offset):
    found, places, _ = made(steps, start)
    back = found.backward(offset).offset
    unread = [at for at, place in places.items() if place >= offset]
    assert back is None or back <= min(unread, default=back)


@given(steps, starts, st.data())
def test_order_and_repetition_of_reports_change_nothing(steps, start, data):
    runs, _, until = history(steps, start)
    reported = data.draw(st.permutations(runs + runs[::2]))
    found = OffsetMap()
    for run in reported:
        found = found.extend([run], until, start[0])
    assert list(found) == list(OffsetMap().extend(runs, until, start[0]))


@given(steps, starts, st.integers(0, 90))
def test_translations_do_not_change_after_pruning(steps, start, before):
    found, _, until = made(steps, start)
    left = found.prune(before)
    assert left.begin == min(max(before, start[0]), until) or left is found
    assert [left.translate(at) for at in range(left.begin, until + 1)] == [
        found.translate(at) for at in range(left.begin, until + 1)
    ]


@given(steps, starts, st.integers(0, 90))
def test_records_hold_the_whole_map(steps, start, before):
    found = made(steps, start)[0].prune(before)
    again = from_records(found.records())
    assert (list(again), again.records()) == (list(found), found.records())


@given(steps, starts, st.integers(0, 14), st.integers(0, 90))
def test_maps_that_grow_out_of_one_another_do_not_disturb_each_other(steps, start, common, offset):
    runs, _, until = history(steps, start)
    some = runs[:common]
    first = OffsetMap().extend(some, some[-1][0] + some[-1][2] if some else start[0], start[0])
    before = first.translate(min(offset, first.until))
    grown = first.extend(runs[common:], until)
    other = first.extend([(until + 100, until + 1_000, 1)], until + 101)
    alone = OffsetMap().extend(runs, until, start[0])
    assert (list(grown), first.translate(min(offset, first.until)), list(other)[-1]) == (
        list(alone),
        before,
        (until + 100, until + 1_000, 1),
    )


@given(steps, starts, st.integers(0, 90))
def test_a_changed_part_differs_from_that_in_the_journal(steps, start, before):
    found = made(steps, start)[0].prune(before)
    grown = found.extend([(found.until + 5, found.until + 500, 1)], found.until + 6)
    reported = {record["part"]: digest(record) for record in found.records()}
    changed = {part for part, made in grown.digests().items() if reported.get(part) != made}
    assert (found.digests(), changed) == (reported, {HEAD, *list(grown.digests())[-1:]})


rows = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(1, 6)), max_size=8)


def rises(places):
    order = [places[at] for at in sorted(places)]
    return order == sorted(set(order))


@given(rows)
def test_of_reports_that_contradict_each_other_the_newest_counts(runs):
    found, places = OffsetMap(), {}
    for source, target, count in runs:
        found = found.extend([(source, target, count)])
        new = {source + at: target + at for at in range(count)}
        clash = any(places.get(at, place) != place for at, place in new.items()) or not rises(places | new)
        if clash:
            places = {at: place for at, place in places.items() if at < source and place < target}
        places |= new
    assert {s + at: t + at for s, t, n in found for at in range(n)} == places


def repeating() -> OffsetMap:
    """A copy of 1,000 records that was set back to 100, and copied again up to 150."""
    return OffsetMap().extend([(0, 0, 1_000)], 1_000, begin=0).extend([(100, 1_000, 50)], 150)


@pytest.mark.parametrize("offset", [150, 900])
def test_a_group_waits_while_records_that_it_did_not_read_are_copied_again(offset: int) -> None:
    """Their first copies are before the second ones."""
    found = repeating()
    assert found.translate(min(offset, found.until)).offset is None


def test_a_group_continues_at_the_second_copy_of_its_next_record() -> None:
    assert repeating().extend([(150, 1_050, 850)], 1_000).translate(900).offset == 1_800


def test_a_group_waits_where_a_repetition_was_ended_before_it_came_to_its_next_record() -> None:
    ended = repeating().jumped(1_000).extend([(1_000, 1_050, 10)], 1_010)
    assert [ended.translate(offset).offset for offset in (120, 900, 1_000)] == [1_020, None, 1_050]


def test_a_group_between_records_continues_after_a_whole_repetition() -> None:
    """Offsets without records: of markers, and of records that were dropped or compacted."""
    twice = OffsetMap().extend([(0, 0, 99)], 100, begin=0).extend([(0, 99, 50)], 50).extend([(50, 149, 49)], 100)
    assert twice.translate(99).offset == 198


def test_the_journal_has_the_end_of_a_repetition() -> None:
    assert from_records(repeating().records()).again == 1_000
