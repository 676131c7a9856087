import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trueup.state.bookkeeper.ledgers import Ledgers, concat, row

NAMES = st.text(st.characters(blacklist_characters="\n", blacklist_categories=["Cs"]), min_size=1, max_size=12)


@st.composite
def ledgers(draw: st.DrawFn) -> Ledgers:
    size = draw(st.integers(1, 4))
    ensembles = draw(st.lists(st.lists(NAMES, min_size=size, max_size=size, unique=True), max_size=3))
    quorum, mzxid = draw(st.integers(1, size)), draw(st.integers(0, 9))
    return row(draw(st.integers(0, 5)), *ensembles, quorum=quorum, mzxid=mzxid)


def shown(rows: Ledgers) -> list[tuple[int, int, list[list[str]]]]:
    return [(int(rows.ledger[i]), int(rows.mzxid[i]), rows.ensembles(i)) for i in range(len(rows))]


@given(st.lists(ledgers(), max_size=8))
def test_bytes_and_back_changes_nothing(parts: list[Ledgers]) -> None:
    rows = concat(parts)
    assert shown(Ledgers.from_bytes(rows.to_bytes())) == shown(rows)


@given(st.lists(ledgers(), max_size=8))
def test_latest_keeps_one_newest_row_of_each_ledger(parts: list[Ledgers]) -> None:
    newest: dict[int, int] = {}
    for ledger, mzxid, _ in shown(concat(parts)):
        newest[ledger] = max(mzxid, newest.get(ledger, -1))
    assert [(i, z) for i, z, _ in shown(concat(parts).latest())] == sorted(newest.items())


@given(st.lists(ledgers(), max_size=8), st.data())
def test_take_is_what_indexing_a_list_is(parts: list[Ledgers], data: st.DataObject) -> None:
    rows = concat(parts)
    picks = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=6) if len(rows) else st.just([]))
    assert shown(rows.take(np.array(picks, np.int64))) == [shown(rows)[k] for k in picks]
