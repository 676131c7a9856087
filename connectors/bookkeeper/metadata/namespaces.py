"""The isolation groups of Pulsar's namespaces: ``/admin/local-policies/<tenant>/<namespace>``.

A namespace with a bookie affinity group has ``bookieAffinityGroup`` there, with its primary and secondary groups as
names separated by commas (LocalPolicies, BookieAffinityGroupData of Pulsar 4.2).
"""

import json
from collections.abc import Iterator

from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.connectors.zookeeper.errors import NoNode
from trueup.state.bookkeeper.topology import NamespaceGroups

ROOT = "/admin/local-policies"
_KEY, _PRIMARY, _SECONDARY = "bookieAffinityGroup", "bookkeeperAffinityGroupPrimary", "bookkeeperAffinityGroupSecondary"


def namespaces(client: ZooKeeperClient) -> tuple[NamespaceGroups, ...]:
    """The namespaces that have groups, or whose groups are not readable, ordered by name. Raises `Retry`,
    `Forbidden`."""
    return tuple(sorted(_grouped(client)))


def _grouped(client: ZooKeeperClient) -> Iterator[NamespaceGroups]:
    for tenant in _children(client, ROOT):
        for name in _children(client, f"{ROOT}/{tenant}"):
            znode = client.look(f"{ROOT}/{tenant}/{name}")
            groups = parsed(f"{tenant}/{name}", b"" if znode is None else znode[0])
            if groups is not None:
                yield groups


def _children(client: ZooKeeperClient, path: str) -> list[str]:
    try:
        return [name.decode(errors="replace") for name in client.listing(path)[0]]
    except NoNode:
        return []


def parsed(name: str, data: bytes) -> NamespaceGroups | None:
    """The groups of a namespace; None if it has none."""
    if not data:
        return None
    try:
        policies = json.loads(data)
        affinity = policies.get(_KEY)
        if affinity is None:
            return None
        primary, secondary = (_names(affinity.get(key)) for key in (_PRIMARY, _SECONDARY))
    except (ValueError, AttributeError, RecursionError):
        return NamespaceGroups(name, (), (), readable=False)
    return NamespaceGroups(name, primary, secondary) if primary else None


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name for name in (text or "").split(",") if name)
