"""The set of known ledgers is equivalent to a dictionary."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup.connectors.bookkeeper.metadata import published
from trueup.connectors.bookkeeper.metadata.published import PublishedVersions, distinct

ids = st.integers(0, 12)
writes = st.lists(st.lists(st.tuples(ids, st.sampled_from([-1, -1, 5, 6, 7])), max_size=8), max_size=12)


@pytest.fixture(params=[(1, 1), (5, 3), (4096, 256)], ids=["runs", "both", "loose"], autouse=True)
def limits(request: pytest.FixtureRequest) -> Iterator[None]:
    normal = published._LOOSE, published._FEW
    published._LOOSE, published._FEW = request.param
    yield
    published._LOOSE, published._FEW = normal


@given(writes)
def test_holding_is_a_dictionary(batches: list[list[tuple[int, int]]]) -> None:
    held, model = apply(batches)
    columns = [column.tolist() for column in held.columns()]
    assert (len(held), columns) == (len(model), [sorted(model), [model[ledger] for ledger in sorted(model)]])


@given(writes)
def test_versions_are_those_of_single_look_ups(batches: list[list[tuple[int, int]]]) -> None:
    held, model = apply(batches)
    asked = np.arange(14)
    single = [held.get(ledger) for ledger in asked.tolist()]
    assert single == held.versions(asked).tolist() == [model.get(ledger, -1) for ledger in asked.tolist()]


def apply(batches: list[list[tuple[int, int]]]) -> tuple[PublishedVersions, dict[int, int]]:
    none: Any = np.zeros(0, np.int64)
    held, model = PublishedVersions(none, none), {}
    for batch in batches:
        held.update(np.array([i for i, _ in batch], np.int64), np.array([v for _, v in batch], np.int64))
        model.update(batch)
    return held, {ledger: mzxid for ledger, mzxid in model.items() if mzxid >= 0}


def test_ids_are_put_in_order_each_once():
    assert [distinct(np.array(ids, np.int64)).tolist() for ids in ([], [3, 1, 3, 2, 1])] == [[], [1, 2, 3]]
