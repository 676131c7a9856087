"""Which node is whose, from its path."""

import pytest

from trueup.connectors.pulsar import messages
from trueup.connectors.pulsar.layout import Kind, Paths, Place
from trueup.connectors.pulsar.nodes import place_of
from trueup.state.common.errors import Stop
from trueup.state.deletion.owners import SCHEMA, home

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
    assert PATHS.places(f"/managed-ledgers/{path}") == (place,)


TWOFOLD = "t/ns/persistent/persistent"
LISTING = messages.ManagedLedger(ledgerInfo=[{"ledgerId": 5}]).SerializeToString()
POSITION = messages.Cursor(cursorsLedgerId=5).SerializeToString()


@pytest.mark.parametrize(
    ("below", "data", "place"),
    [
        ("", LISTING, Place(Kind.MANAGED_LEDGER, TWOFOLD)),
        ("", b"", Place(Kind.STRANGE, TWOFOLD)),
        ("", b"\xff", Place(Kind.MANAGED_LEDGER, TWOFOLD)),
        ("/a", POSITION, Place(Kind.CURSOR, TWOFOLD, "a")),
        ("/a", LISTING, Place(Kind.MANAGED_LEDGER, f"{TWOFOLD}/a")),
        ("/a", b"", Place(Kind.MANAGED_LEDGER, f"{TWOFOLD}/a")),
        ("/a", b"\xff", Place(Kind.CURSOR, TWOFOLD, "a")),
        ("/a/sub", POSITION, Place(Kind.CURSOR, f"{TWOFOLD}/a", "sub")),
    ],
)
def test_the_data_tell_the_topic_persistent_from_a_namespace_of_that_name(
    below: str, data: bytes, place: Place
) -> None:
    assert place_of(PATHS, f"/managed-ledgers/{TWOFOLD}{below}", data) == place


def test_both_readings_of_a_path_are_kept_in_one_place() -> None:
    assert {home(TWOFOLD), home(f"{TWOFOLD}/a")} == {TWOFOLD}


def test_schemas_are_named_by_their_id() -> None:
    assert PATHS.places("/schemas/t/ns/a%3Ab") == (Place(Kind.SCHEMA, f"{SCHEMA}t/ns/a%3Ab"),)


@pytest.mark.parametrize("owner", ["t/ns/persistent/a", "t/c/ns/persistent/a", TWOFOLD, f"{SCHEMA}t/ns/a"])
@pytest.mark.parametrize("root", ["", "/a/b"])
def test_owners_have_a_node_that_is_theirs(owner: str, root: str) -> None:
    paths = Paths(root)
    assert paths.places(paths.node(owner))[0].owner == owner


@pytest.mark.parametrize("owner", ["", SCHEMA, "t/../x", "t//x", "/t", "t/.", "a\0b", "t/\ud800"])
def test_names_that_no_node_can_have_are_refused(owner: str) -> None:
    with pytest.raises(Stop):
        PATHS.node(owner)
