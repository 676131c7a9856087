"""The set of known ledgers behaves as a dictionary would."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from connectors.bookkeeper import known
from connectors.bookkeeper.known import Held

ids = st.integers(0, 30)
writes = st.lists(st.lists(st.tuples(ids, st.integers(-1, 99)), max_size=8), max_size=12)


@given(writes, st.integers(0, 6))
def test_holding_is_a_dictionary(batches: list[list[tuple[int, int]]], loose: int) -> None:
    normal, known._LOOSE = known._LOOSE, loose
    try:
        held, model = apply(batches)
    finally:
        known._LOOSE = normal
    columns = [column.tolist() for column in held.columns()]
    assert (columns, len(held)) == ([sorted(model), [model[ledger] for ledger in sorted(model)]], len(model))


@given(writes)
def test_versions_are_those_of_single_look_ups(batches: list[list[tuple[int, int]]]) -> None:
    held, model = apply(batches)
    asked = np.arange(32)
    single = [held.get(ledger) for ledger in asked.tolist()]
    assert single == held.versions(asked).tolist() == [model.get(ledger, -1) for ledger in asked.tolist()]


def apply(batches: list[list[tuple[int, int]]]) -> tuple[Held, dict[int, int]]:
    none: Any = np.zeros(0, np.int64)
    held, model = Held(none, none), {}
    for batch in batches:
        held.update(np.array([i for i, _ in batch], np.int64), np.array([v for _, v in batch], np.int64))
        model.update(batch)
    return held, {ledger: mzxid for ledger, mzxid in model.items() if mzxid >= 0}
