"""A bucket of owners returns the same result for any partition of its input into batches."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.memory_store import MemoryStore
from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.deletion.owned_ledgers import (
    NO_LEDGERS,
    NO_NODES,
    OWNED,
    OwnedLedgerTable,
    joined,
    newest_ledgers,
    newest_nodes,
    nodes_of,
    packed,
)
from trueup.state.deletion.owners import Component, OwnerStatus, Pointers
from trueup.state.deletion.verdicts import LEAK, judge
from trueup.state.deletion.view import OwnerBucket

OWNERS = ("t/n/persistent/a", "t/n/persistent/b")
STATES = (LedgerState.GONE, LedgerState.OPEN, LedgerState.CLOSED, LedgerState.UNREADABLE)
ledger_rows = st.tuples(st.integers(0, 9), st.sampled_from(STATES), st.integers(0, 1), st.integers(-1, 2))
node_rows = st.tuples(
    st.integers(0, 1), st.sampled_from(["", "sub"]), st.sampled_from(list(OwnerStatus)), st.sets(st.integers(0, 9))
)
steps = st.lists(st.one_of(ledger_rows, node_rows), max_size=40)


def ledger_table(at: int, row: tuple[int, LedgerState, int, int]) -> OwnedLedgerTable:
    """The observation of a ledger in step ``at``, which is also its mzxid."""
    ledger, state, owner, last = row
    made, readable = np.zeros(1, OWNED), state is not LedgerState.UNREADABLE
    component = Component.DATA if readable else Component.UNKNOWN
    made[0] = (ledger, at, 1, 1, last, 10, at, int(readable), 0, state, component)
    return OwnedLedgerTable(made, ("", OWNERS[ledger % 2] if state else OWNERS[owner]))


def node_table(at: int, row: tuple[int, str, OwnerStatus, set[int]]) -> OwnedLedgerTable:
    owner, name, status, listed = row
    path = f"{OWNERS[owner]}/{name}"
    return nodes_of([Pointers(path, OWNERS[owner], name, status, at, at, 1, tuple(sorted(listed)))])


def verdicts_of(rows: np.ndarray, names: tuple[str, ...]) -> list[tuple[object, ...]]:
    return [(*(row[n].item() for n in ("ledger", "version", "rule", "verdict")), names[row["owner"]]) for row in rows]


@given(steps, st.integers(1, 5))
def test_portions_change_nothing(made: list[tuple[object, ...]], portion: int) -> None:
    ledgers, nodes = [], []
    for at, row in enumerate(made):
        if isinstance(row[1], str):
            nodes.append(node_table(at, row))  # type: ignore[arg-type]
        else:
            ledgers.append(ledger_table(at, row))  # type: ignore[arg-type]
    store = MemoryStore()
    for at in range(0, max(len(ledgers), len(nodes)), portion):
        some = joined([NO_LEDGERS, *ledgers[at : at + portion]]), joined([NO_NODES, *nodes[at : at + portion]])
        OwnerBucket(store).step(*some)
    found = OwnerBucket(store).step(asked=True)
    assert found is not None
    every = newest_ledgers(joined([NO_LEDGERS, *ledgers]))
    there = OwnedLedgerTable(every.rows[every.rows["state"] != LedgerState.GONE], every.names)
    known = newest_nodes(joined([NO_NODES, *nodes]))
    wanted = verdicts_of(judge(there, known)[0], (*there.names, *known.names))
    assert verdicts_of(found.rows, found.names) == wanted


@given(steps)
def test_a_table_is_the_same_after_a_round_trip(made: list[tuple[object, ...]]) -> None:
    nodes = joined([NO_NODES, *(node_table(at, row) for at, row in enumerate(made) if isinstance(row[1], str))])  # type: ignore[arg-type]
    again = packed(OwnedLedgerTable.from_bytes(nodes.to_bytes()))
    assert [again.text("path", at) for at in range(len(again))] == [nodes.text("path", at) for at in range(len(nodes))]


def test_a_long_log_is_written_anew() -> None:
    store = MemoryStore()
    for at in range(70):
        OwnerBucket(store).step(ledger_table(at, (at, LedgerState.CLOSED, 0, 2)))
    assert len(store.log) < 10


def test_an_empty_bucket_answers_when_it_is_asked() -> None:
    found = OwnerBucket(MemoryStore()).step(asked=True)
    assert found is not None
    assert (len(found.rows), found.rows.dtype) == (0, LEAK)
