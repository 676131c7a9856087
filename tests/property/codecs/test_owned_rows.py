"""Bulk decoding of ledgers and nodes equals decoding one by one; damage is reported."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.codecs.test_bookkeeper_metadata import ledgers
from trueup.state.bookkeeper.observations import LedgerRecord
from trueup.state.common.errors import BadBytes
from trueup.state.deletion.owners import OwnerStatus, Pointers, claim_of
from trueup.streams.deletion.codec import node_rows, owned_rows
from trueup.streams.deletion.owners import record_of
from trueup.streams.journal.codec import decode, encode

KEYS = ("pulsar/managed-ledger", "pulsar/cursor", "pulsar/schemaId", "pulsar/compactedTopic", "pulsar/compactedTo")
PARTS = (b"managed-ledger", b"compacted-ledger", b"schema", b"delayed-index-bucket", b"new")
texts = st.text("abz/%2é:~ \n", max_size=12)
customs = st.fixed_dictionaries(
    {"application": st.sampled_from([b"pulsar", b"pulsar", b"other"]), "component": st.sampled_from(PARTS)},
    optional={key: st.one_of(texts.map(str.encode), st.binary(max_size=9)) for key in KEYS},
)
records = st.tuples(ledgers(), st.one_of(customs, st.just({}))).map(lambda pair: {**pair[0], "custom": pair[1]})
longs, names = st.integers(0, 2**62), st.text("abc/%é", max_size=9)
nodes = st.builds(
    Pointers,
    path=names,
    owner=names,
    name=names,
    status=st.sampled_from(list(OwnerStatus)),
    version=st.integers(-1, 2**31 - 1),
    mzxid=longs,
    seen_ms=longs,
    ledgers=st.lists(longs, max_size=5, unique=True).map(tuple),
    elsewhere=st.booleans(),
    error=names,
    copies=st.just(()),
).flatmap(
    lambda node: st.sets(st.sampled_from(node.ledgers or (0,))).map(
        lambda some: node._replace(dropped=tuple(i for i in node.ledgers if i in some))
    )
)
COLUMNS = ("ledger", "mzxid", "version", "ctime_ms", "seen_ms", "state", "last_entry", "length")


@given(st.lists(records, max_size=8))
def test_ledgers_are_read_as_they_are_one_by_one(made: list[LedgerRecord]) -> None:
    table = owned_rows([encode("ledgers", record) for record in made])
    claims = [claim_of(record["custom"]) for record in made]
    assert table.rows[list(COLUMNS)].tolist() == [tuple(record[name] for name in COLUMNS) for record in made]  # type: ignore[literal-required]
    assert [
        (row["component"], table.text("owner", at), table.text("name", at)) for at, row in enumerate(table.rows)
    ] == claims


@given(st.lists(nodes, max_size=8))
def test_nodes_are_read_as_they_are_one_by_one(made: list[Pointers]) -> None:
    bodies = [encode("owners", record_of(node)) for node in made]
    assert [decode("owners", body) for body in bodies] == [record_of(node) for node in made]
    table = node_rows(bodies)
    at, seen = 0, list[Any]()
    for number, row in enumerate(table.rows):
        some = table.listed[at : at + row["count"]]
        at += row["count"]
        *texts, error = (table.text(name, number) for name in ("path", "owner", "name", "error"))
        dropped = tuple(some["ledger"][some["dropped"] > 0].tolist())
        columns = [row[name].item() for name in ("status", "version", "mzxid", "seen_ms")]
        lists = tuple(some["ledger"].tolist()), dropped
        seen.append(Pointers(*texts, *columns, *lists, bool(row["elsewhere"]), error))
    assert (seen, at) == (made, len(table.listed))


@given(st.lists(records, min_size=1, max_size=3), st.data())
def test_a_truncated_record_is_reported(made: list[LedgerRecord], data: Any) -> None:
    bodies = [encode("ledgers", record) for record in made]
    at = data.draw(st.integers(0, len(bodies) - 1))
    # The error follows the custom metadata and is not decoded here; an empty one is one byte.
    bodies[at] = bodies[at][: data.draw(st.integers(0, len(bodies[at]) - 2))]
    with pytest.raises(BadBytes):
        owned_rows(bodies)


@given(st.lists(nodes, min_size=1, max_size=3), st.data())
def test_a_truncated_node_is_reported(made: list[Pointers], data: Any) -> None:
    bodies = [encode("owners", record_of(node)) for node in made]
    at = data.draw(st.integers(0, len(bodies) - 1))
    bodies[at] = bodies[at][: data.draw(st.integers(0, len(bodies[at]) - 1))]
    with pytest.raises(BadBytes):
        node_rows(bodies)


def test_a_node_with_another_status_is_reported() -> None:
    node = Pointers("/a", "a", "", OwnerStatus.READABLE, 1, 1, 1)
    with pytest.raises(BadBytes, match="a status of a node"):
        node_rows([encode("owners", {**record_of(node), "status": 4})])
