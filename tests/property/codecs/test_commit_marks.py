"""Metadata of group offsets: the marks of links are recognized, and no others."""

from base64 import b64decode, b64encode

from hypothesis import given
from hypothesis import strategies as st

from trueup.connectors.kafka.client.commit_marks import mark, path_of

PATHS, OFFSETS = st.integers(1, (1 << 32) - 1), st.integers(0, (1 << 63) - 1)


@given(PATHS, OFFSETS)
def test_a_mark_has_the_path(path: int, offset: int) -> None:
    assert path_of(mark(path, offset), offset) == path


@given(PATHS, OFFSETS, OFFSETS)
def test_a_mark_that_is_committed_with_another_offset_is_none(path: int, offset: int, other: int) -> None:
    assert path_of(mark(path, offset), other) == (path if other == offset else 0)


@given(st.one_of(st.none(), st.text(), st.binary().map(lambda data: b64encode(data).decode())), OFFSETS)
def test_metadata_of_applications_are_no_mark(metadata: str | None, offset: int) -> None:
    assert path_of(metadata, offset) == 0


@given(PATHS, OFFSETS, st.integers(0, 23), st.characters())
def test_a_changed_mark_is_read_without_an_error(path: int, offset: int, at: int, other: str) -> None:
    whole = mark(path, offset)
    assert path_of(whole[:at] + other + whole[at + 1 :], offset) in range(1 << 32)


@given(PATHS, OFFSETS)
def test_kafka_streams_reads_a_version_that_it_does_not_have(path: int, offset: int) -> None:
    """StreamTask.java 2.4, decodeTimestamp: Base64, then a version of one byte."""
    assert b64decode(mark(path, offset), validate=True)[0] > 2
