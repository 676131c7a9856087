"""Marks, locks and votes as written by 4.17 and 4.18, and malformed ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup.connectors.bookkeeper.metadata import mark_codec
from trueup.connectors.bookkeeper.metadata.mark_codec import Mark
from trueup.connectors.bookkeeper.metadata.metadata import valid_bookie

bookies = st.from_regex(r"[a-zA-Z0-9:-_.\-]{1,30}", fullmatch=True).filter(valid_bookie)


@pytest.mark.parametrize(
    ("data", "mark"),
    [
        (b'replica: "127.0.0.2:3182"\nctime: 1787000000000\n', Mark(("127.0.0.2:3182",), 1787000000000)),
        (b'replica: "a:1"\nreplica: "b:1"\n', Mark(("a:1", "b:1"))),
        (b"ctime: 5\n", Mark((), 5)),
        (b"", Mark()),
        (b'replica: "a:1" ctime: 5', Mark(("a:1",), 5)),
        (b'replica: "a\\\\b:1"\n', Mark(("a\\b:1",))),
        (b'replica: "a:1"\nlater: 3\n', Mark(("a:1",), -1, whole=False)),
        (b"\x00\xff{", Mark(whole=False)),
        (b"ctime: 99999999999999999999\n", Mark(whole=False)),
    ],
)
def test_marks_are_read(data: bytes, mark: Mark) -> None:
    assert mark_codec.decode(data) == mark


@given(st.lists(bookies, max_size=4), st.integers(-1, 2**62))
def test_marks_come_back_as_they_were_written(replicas: list[str], ctime: int) -> None:
    assert mark_codec.decode(mark_codec.encode(tuple(replicas), ctime)) == Mark(tuple(replicas), ctime)


def test_a_mark_has_one_field_a_line() -> None:
    assert mark_codec.encode(("a:1", "b:1"), 7) == b'replica: "a:1"\nreplica: "b:1"\nctime: 7\n'


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_read_or_refused_as_a_mark(data: bytes) -> None:
    assert mark_codec.decode(data).ctime_ms >= -(2**63)


@pytest.mark.parametrize(
    ("data", "who"),
    [(b'bookieId: "ar1"\n', "ar1"), (b'bookieId: "h.example.org"', "h.example.org"), (b"", ""), (b"\xff", "")],
)
def test_holders_are_read(data: bytes, who: str) -> None:
    assert mark_codec.holder(data) == who


def test_a_vote_is_read_back() -> None:
    assert mark_codec.holder(mark_codec.vote("trueup-h1")) == "trueup-h1"
