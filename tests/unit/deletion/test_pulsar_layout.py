"""The owner of a znode according to its path."""

import pytest

from trueup.connectors.pulsar import messages
from trueup.connectors.pulsar.layout import NodeKind, NodeLocation, PulsarPaths
from trueup.connectors.pulsar.nodes import place_of
from trueup.state.common.errors import Stop
from trueup.state.deletion.owners import SCHEMA, home

PATHS = PulsarPaths()


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("t/ns/persistent/a", NodeLocation(NodeKind.MANAGED_LEDGER, "t/ns/persistent/a")),
        ("t/ns/persistent/a/sub%2Fx", NodeLocation(NodeKind.CURSOR, "t/ns/persistent/a", "sub%2Fx")),
        ("t/ns/persistent/a/sub/more", NodeLocation(NodeKind.AMBIGUOUS, "t/ns/persistent/a")),
        ("t/cluster/ns/persistent/a", NodeLocation(NodeKind.MANAGED_LEDGER, "t/cluster/ns/persistent/a")),
        ("t/cluster/ns/persistent/a/sub", NodeLocation(NodeKind.CURSOR, "t/cluster/ns/persistent/a", "sub")),
        ("t/ns/segment/a/0000-7fff-1", NodeLocation(NodeKind.MANAGED_LEDGER, "t/ns/segment/a/0000-7fff-1")),
        ("t/ns/segment/a/0000-7fff-1/sub", NodeLocation(NodeKind.CURSOR, "t/ns/segment/a/0000-7fff-1", "sub")),
        ("t/ns/segment/a", NodeLocation(NodeKind.AMBIGUOUS, "t/ns/segment/a")),
        ("t/persistent/persistent/a", NodeLocation(NodeKind.MANAGED_LEDGER, "t/persistent/persistent/a")),
        ("t", NodeLocation(NodeKind.AMBIGUOUS, "t")),
        ("t/ns/persistent", NodeLocation(NodeKind.AMBIGUOUS, "t/ns/persistent")),
        ("a/b/c/d", NodeLocation(NodeKind.AMBIGUOUS, "a/b/c/d")),
    ],
)
def test_the_path_of_a_node_determines_its_owner(path: str, place: NodeLocation) -> None:
    assert PATHS.places(f"/managed-ledgers/{path}") == (place,)


TWOFOLD = "t/ns/persistent/persistent"
LISTING = messages.ManagedLedger(ledgerInfo=[{"ledgerId": 5}]).SerializeToString()
POSITION = messages.Cursor(cursorsLedgerId=5).SerializeToString()


@pytest.mark.parametrize(
    ("below", "data", "place"),
    [
        ("", LISTING, NodeLocation(NodeKind.MANAGED_LEDGER, TWOFOLD)),
        ("", b"", NodeLocation(NodeKind.AMBIGUOUS, TWOFOLD)),
        ("", b"\xff", NodeLocation(NodeKind.MANAGED_LEDGER, TWOFOLD)),
        ("/a", POSITION, NodeLocation(NodeKind.CURSOR, TWOFOLD, "a")),
        ("/a", LISTING, NodeLocation(NodeKind.MANAGED_LEDGER, f"{TWOFOLD}/a")),
        ("/a", b"", NodeLocation(NodeKind.MANAGED_LEDGER, f"{TWOFOLD}/a")),
        ("/a", b"\xff", NodeLocation(NodeKind.CURSOR, TWOFOLD, "a")),
        ("/a/sub", POSITION, NodeLocation(NodeKind.CURSOR, f"{TWOFOLD}/a", "sub")),
    ],
)
def test_the_data_distinguish_the_topic_persistent_from_a_namespace_of_that_name(
    below: str, data: bytes, place: NodeLocation
) -> None:
    assert place_of(PATHS, f"/managed-ledgers/{TWOFOLD}{below}", data) == place


def test_both_readings_of_a_path_are_kept_in_one_place() -> None:
    assert {home(TWOFOLD), home(f"{TWOFOLD}/a")} == {TWOFOLD}


def test_schemas_are_named_by_their_id() -> None:
    assert PATHS.places("/schemas/t/ns/a%3Ab") == (NodeLocation(NodeKind.SCHEMA, f"{SCHEMA}t/ns/a%3Ab"),)


@pytest.mark.parametrize("owner", ["t/ns/persistent/a", "t/c/ns/persistent/a", TWOFOLD, f"{SCHEMA}t/ns/a"])
@pytest.mark.parametrize("root", ["", "/a/b"])
def test_owners_have_a_node_that_is_theirs(owner: str, root: str) -> None:
    paths = PulsarPaths(root)
    assert paths.places(paths.node(owner))[0].owner == owner


@pytest.mark.parametrize("owner", ["", SCHEMA, "t/../x", "t//x", "/t", "t/.", "a\0b", "t/\ud800"])
def test_names_that_no_node_can_have_are_refused(owner: str) -> None:
    with pytest.raises(Stop):
        PATHS.node(owner)
