"""The replication audit finds every kind of fault."""

import pytest

from tests.replication.audit import Content, Log, Stream, Verdict, judge

HERE, THERE = Stream("east", "idempotent", 0), Stream("west", "idempotent", 0)


def content(number: int, value: bytes = b"v") -> Content:
    return Content(number, value, (1, 1_000 + number), (("trace", b"1"),))


def logs(west: list[Content]) -> dict[str, Log]:
    """The source east has records 0 to 3; west has these records of them."""
    return {"east": {HERE: [content(n) for n in range(4)]}, "west": {HERE: west, THERE: [content(7)]}}


@pytest.mark.parametrize(
    ("west", "wanted"),
    [
        ([0, 1, 2, 3], Verdict(5)),
        ([0, 1, 3], Verdict(4, missing=1)),
        ([0, 1, 1, 2, 3], Verdict(6, duplicates=1, order_breaks=1)),
        ([0, 2, 1, 3], Verdict(5, order_breaks=1)),
        ([0, 1, 2, 3, 4], Verdict(6, extra=1)),
    ],
)
def test_what_is_wrong_at_the_target_is_counted(west: list[int], wanted: Verdict) -> None:
    assert judge("west", logs([content(n) for n in west])) == wanted


def test_the_order_is_that_of_the_log_of_origin() -> None:
    born = [content(n) for n in (0, 2, 1, 3)]
    made = {"east": {HERE: born}, "west": {HERE: born}}
    assert [judge(name, made).order_breaks for name in made] == [0, 0]


@pytest.mark.parametrize(
    ("west", "wanted"),
    [
        ([0, 1, 0, 1, 2], Verdict(5)),
        ([0, 1, 2], Verdict(3, missing=2)),
        ([0, 1, 0, 1, 0, 1, 2], Verdict(7, duplicates=2, order_breaks=1)),
        ([0, 0, 1, 1, 2], Verdict(5, order_breaks=1)),
    ],
)
def test_what_a_writer_without_idempotence_repeats_is_copied_as_often(west: list[int], wanted: Verdict) -> None:
    stream = Stream("east", "leader-only", 0)
    made = {"east": {stream: [content(n) for n in (0, 1, 0, 1, 2)]}, "west": {stream: [content(n) for n in west]}}
    assert (judge("west", made), judge("east", made)) == (wanted, Verdict(5))


def test_what_another_writer_repeated_is_copied_as_often() -> None:
    made = {"east": {HERE: [content(n) for n in (0, 1, 0)]}, "west": {HERE: [content(n) for n in (0, 1)]}}
    assert [judge(name, made, repeating={HERE}) for name in made] == [Verdict(3), Verdict(2, missing=1)]


def test_a_changed_record_is_seen() -> None:
    assert judge("west", logs([content(0), content(1), content(2, b"other"), content(3)])).altered == 1


def test_a_record_that_came_home_is_a_duplicate() -> None:
    made = logs([content(n) for n in range(4)])
    made["east"][HERE].append(content(3))
    assert judge("east", made).duplicates == 1


def test_a_record_that_was_promised_and_is_gone_is_lost() -> None:
    assert judge("east", logs([]), acknowledged=[b"east|idempotent|3", b"east|idempotent|9"]).lost == 1


def test_a_topic_where_nothing_ever_arrived_lacks_everything() -> None:
    assert judge("west", {"east": logs([])["east"], "west": {}}).missing == 4
