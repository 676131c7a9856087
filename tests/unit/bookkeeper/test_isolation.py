"""Isolation groups in custom metadata, as Pulsar's class reads them."""

import json
from typing import Any

import pytest

from trueup.connectors.bookkeeper.metadata.namespaces import parsed
from trueup.state.bookkeeper.isolation import BROKEN, KEY, POLICY_CLASS, groups_in, isolation_of, namespace_in
from trueup.state.bookkeeper.topology import Bookie, NamespaceGroups, PlacementPolicy, Status, Topology
from trueup.streams.bookkeeper.codec import topology_bytes, topology_from

GROUPS = (None, (), ("a",), ("a", "b"))
BOTH = b'{"bookieAffinityGroup": {"bookkeeperAffinityGroupPrimary": "a", "bookkeeperAffinityGroupSecondary": "b"}}'
RACKS = "org.apache.bookkeeper.client.RackawareEnsemblePlacementPolicy"


def text(properties: Any, policy: str | None = POLICY_CLASS) -> str:
    return isolation_of({KEY: json.dumps({"policyClass": policy, "properties": properties}).encode()})


@pytest.mark.parametrize(
    ("properties", "groups"),
    [
        ({"isolationBookieGroups": "a,b", "secondaryIsolationBookieGroups": "c"}, ({"a", "b"}, {"c"})),
        ({"isolationBookieGroups": ["a", "b"]}, ({"a", "b"}, set())),
        ({"isolationBookieGroups": "a, b"}, ({"a", " b"}, set())),
        ({"isolationBookieGroups": ""}, (set(), set())),
        ({}, (set(), set())),
        ({"isolationBookieGroups": "\ud800\n"}, ({"\ud800\n"}, set())),
    ],
)
def test_groups_are_read(properties: Any, groups: tuple[set[str], set[str]]) -> None:
    assert groups_in(text(properties)) == groups


@pytest.mark.parametrize("config", [b"", b"{", b"[]", b"\xff", b"9" * 5_000, b"[" * 100_000])
def test_metadata_that_pulsar_cannot_decode_leave_the_groups_of_the_client(config: bytes) -> None:
    assert isolation_of({KEY: config}) == ""


def test_metadata_of_another_class_leave_the_groups_of_the_client() -> None:
    assert text({"isolationBookieGroups": "a"}, RACKS) == ""


@pytest.mark.parametrize(
    ("custom", "namespace"),
    [
        ({"application": b"pulsar", "pulsar/managed-ledger": b"public/default/persistent/a"}, "public/default"),
        ({"application": b"pulsar", "pulsar/managed-ledger": b"odd"}, ""),
        ({"application": b"other", "pulsar/managed-ledger": b"public/default/persistent/a"}, ""),
        ({}, ""),
    ],
)
def test_metadata_without_a_policy_name_the_namespace(custom: dict[str, bytes], namespace: str) -> None:
    assert namespace_in(isolation_of(custom)) == namespace


@pytest.mark.parametrize(
    ("data", "groups"),
    [
        (b'{"bookieAffinityGroup": {"bookkeeperAffinityGroupPrimary": "a,b"}}', NamespaceGroups("t/n", ("a", "b"))),
        (BOTH, NamespaceGroups("t/n", ("a",), ("b",))),
        (b'{"bundles": {}}', None),
        (b'{"bookieAffinityGroup": null}', None),
        (b"", None),
        (b"{", NamespaceGroups("t/n", (), readable=False)),
        (b"[]", NamespaceGroups("t/n", (), readable=False)),
        (b'{"bookieAffinityGroup": 5}', NamespaceGroups("t/n", (), readable=False)),
    ],
)
def test_the_groups_of_a_namespace_are_read(data: bytes, groups: NamespaceGroups | None) -> None:
    assert parsed("t/n", data) == groups


@pytest.mark.parametrize(("properties", "policy"), [(None, POLICY_CLASS), ({}, None)])
def test_metadata_for_which_pulsars_class_fails_are_broken(properties: Any, policy: str | None) -> None:
    assert text(properties, policy) == BROKEN


def test_texts_of_equal_groups_are_equal() -> None:
    assert text({"isolationBookieGroups": "b,a"}) == text({"isolationBookieGroups": ["a", "b"]})


def test_a_topology_with_groups_survives_its_record() -> None:
    bookies = tuple(Bookie(f"b{at}", None, Status.WRITABLE, 0, groups=groups) for at, groups in enumerate(GROUPS))
    policy = PlacementPolicy("isolation", ("east",), 3, 1, 2, ("a",), ("b",), True, True)
    named = (NamespaceGroups("t/n", ("a", "b"), ("c",)), NamespaceGroups("t/m", (), readable=False))
    for namespaces in (None, (), named):
        topology = Topology(1, 0, bookies, policy=policy, namespaces=namespaces)
        assert topology_from(topology_bytes(topology)) == topology
