"""A bucket's store keeps its content in Spark state, in compact form."""

from typing import Any

import pytest

from trueup.streams.runtime.spark.spark_store import SparkStore

CELLS = ("a", "b")


class Handle:
    """The part of Spark's list state and value state that a store uses."""

    def __init__(self) -> None:
        self.rows: list[tuple[bytes]] = []

    def get(self) -> Any:
        return self.rows

    def put(self, rows: list[tuple[bytes]]) -> None:
        self.rows = list(rows)

    def appendValue(self, row: tuple[bytes]) -> None:  # noqa: N802
        self.rows.append(row)

    def clear(self) -> None:
        self.rows = []


class Value(Handle):
    def get(self) -> Any:
        return self.rows[0] if self.rows else None

    def update(self, row: tuple[bytes]) -> None:
        self.rows = [row]


@pytest.fixture
def states() -> tuple[Handle, Value]:
    return Handle(), Value()


def test_blocks_come_back_as_they_were_appended(states: tuple[Handle, Value]) -> None:
    for block in (b"", b"one" * 1_000, bytes(range(256))):
        SparkStore(*states, CELLS).append(block)
    assert SparkStore(*states, CELLS).blocks() == [b"", b"one" * 1_000, bytes(range(256))]


def test_a_log_is_replaced(states: tuple[Handle, Value]) -> None:
    store = SparkStore(*states, CELLS)
    store.append(b"old")
    store.rewrite([b"new", b"er"])
    assert SparkStore(*states, CELLS).blocks() == [b"new", b"er"]


def test_a_log_may_become_empty(states: tuple[Handle, Value]) -> None:
    store = SparkStore(*states, CELLS)
    store.append(b"old")
    store.rewrite([])
    assert SparkStore(*states, CELLS).blocks() == []


def test_cells_come_back_after_a_flush(states: tuple[Handle, Value]) -> None:
    store = SparkStore(*states, CELLS)
    store.put("b", b"\xff" * 100)
    store.flush()
    again = SparkStore(*states, CELLS)
    assert (again.get("a"), again.get("b")) == (b"", b"\xff" * 100)


def test_cells_are_not_written_when_none_was_put(states: tuple[Handle, Value]) -> None:
    SparkStore(*states, CELLS).flush()
    assert states[1].rows == []


def test_what_repeats_is_kept_small(states: tuple[Handle, Value]) -> None:
    SparkStore(*states, CELLS).append(b"bookie-1.bookie.pulsar:3181\n" * 1_000)
    assert len(states[0].rows[0][0]) < 1_000
