"""Which node is whose, from its path."""

import pytest

from connectors.pulsar.paths import Kind, Paths, Place
from state.errors import Stop
from state.owners import SCHEMA

PATHS = Paths()


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("t/ns/persistent/a", Place(Kind.MANAGED_LEDGER, "t/ns/persistent/a")),
        ("t/ns/persistent/a/sub%2Fx", Place(Kind.CURSOR, "t/ns/persistent/a", "sub%2Fx")),
        ("t/ns/persistent/a/sub/more", Place(Kind.STRANGE, "t/ns/persistent/a")),
        ("t/cluster/ns/persistent/a", Place(Kind.MANAGED_LEDGER, "t/cluster/ns/persistent/a")),
        ("t/cluster/ns/persistent/a/sub", Place(Kind.CURSOR, "t/cluster/ns/persistent/a", "sub")),
        ("t/ns/segment/a/0000-7fff-1", Place(Kind.MANAGED_LEDGER, "t/ns/segment/a/0000-7fff-1")),
        ("t/ns/segment/a/0000-7fff-1/sub", Place(Kind.CURSOR, "t/ns/segment/a/0000-7fff-1", "sub")),
        ("t/ns/segment/a", Place(Kind.STRANGE, "t/ns/segment/a")),
        ("t/persistent/persistent/a", Place(Kind.MANAGED_LEDGER, "t/persistent/persistent/a")),
        ("t", Place(Kind.STRANGE, "t")),
        ("t/ns/persistent", Place(Kind.STRANGE, "t/ns/persistent")),
        ("a/b/c/d", Place(Kind.STRANGE, "a/b/c/d")),
    ],
)
def test_the_path_of_a_node_tells_whose_it_is(path: str, place: Place) -> None:
    assert PATHS.place(f"/managed-ledgers/{path}") == place


@pytest.mark.parametrize("below", ["", "/a", "/a/sub"])
def test_a_topic_that_may_as_well_be_a_namespace_is_told_apart_by_nobody(below: str) -> None:
    assert PATHS.place(f"/managed-ledgers/t/ns/persistent/persistent{below}").kind is Kind.STRANGE


def test_what_lies_below_a_name_with_two_meanings_keeps_both_of_them_from_deletion() -> None:
    place = PATHS.place("/managed-ledgers/t/ns/persistent/persistent/a/sub")
    assert place.owner == "t/ns/persistent/persistent/a"


def test_schemas_are_named_by_their_id() -> None:
    assert PATHS.place("/schemas/t/ns/a%3Ab") == Place(Kind.SCHEMA, f"{SCHEMA}t/ns/a%3Ab")


@pytest.mark.parametrize("owner", ["t/ns/persistent/a", "t/c/ns/persistent/a", f"{SCHEMA}t/ns/a"])
@pytest.mark.parametrize("root", ["", "/a/b"])
def test_owners_have_a_node_that_is_theirs(owner: str, root: str) -> None:
    paths = Paths(root)
    assert paths.place(paths.node(owner)).owner == owner


@pytest.mark.parametrize("owner", ["", SCHEMA, "t/../x", "t//x", "/t", "t/.", "a\0b", "t/\ud800"])
def test_names_that_no_node_can_have_are_refused(owner: str) -> None:
    with pytest.raises(Stop):
        PATHS.node(owner)
