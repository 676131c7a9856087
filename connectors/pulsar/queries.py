"""Traversals and reads of Pulsar's nodes."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from trueup.connectors.pulsar.layout import PulsarPaths
from trueup.connectors.pulsar.nodes import forbidden, gone, pointers_of
from trueup.connectors.zookeeper.client import Pace, ZooKeeperClient
from trueup.connectors.zookeeper.errors import FORBIDDEN, GONE, NoNode
from trueup.connectors.zookeeper.requests import Stat
from trueup.state.deletion.owners import OwnerStatus, Pointers

PACE = Pace(100, 2)
"""A node can have a megabyte, and a response contains this number of nodes."""
_NAMES_TOGETHER, _LISTINGS = 50_000, 250


class Node(NamedTuple):
    """A node as read."""

    path: str
    data: bytes
    stat: Stat | None
    """The stat of the node, or None with an error."""
    error: int
    """GONE or FORBIDDEN, or 0 if the node was read."""
    zxid: int
    """The zxid of the response. The result is as of this zxid."""


def read(client: ZooKeeperClient, paths: Iterable[str], pace: Pace = PACE) -> Iterator[list[Node]]:
    """These nodes, in their order, one list per response. Raises `Retry`."""
    node_paths = list(paths)
    at = 0
    for part in client.multi_read("", [path[1:].encode() for path in node_paths], pace):
        sizes = enumerate(part.size.tolist())
        yield [
            Node(node_paths[at + row], b"", None, size, part.zxid)
            if size < 0
            else Node(node_paths[at + row], part.data(row), part.stat(row), 0, part.zxid)
            for row, size in sizes
        ]
        at += len(part)


def walk(client: ZooKeeperClient, tops: Sequence[str], pace: Pace = PACE) -> Iterator[list[Node]]:
    """These nodes and all below them, level by level. A forbidden node is included, nodes below it are not."""
    level = list(tops)
    while level:
        above: list[tuple[str, int]] = []
        for nodes in read(client, level, pace):
            above += [(node.path, node.stat.children) for node in nodes if node.stat and node.stat.children]
            yield nodes
        level = [path for some in _together(above) for path in _below(client, some)]


def below(client: ZooKeeperClient, tops: Sequence[str], pace: Pace = PACE) -> Iterator[list[Node]]:
    """All nodes below these, which need not exist. Raises `Forbidden` if one may not be listed."""
    level: list[str] = []
    for top in tops:
        with suppress(NoNode):
            level += [f"{top}/{name.decode()}" for name in client.listing(top)[0]]
    return walk(client, level, pace)


def owned(
    client: ZooKeeperClient, paths: PulsarPaths, owners: Iterable[str], seen_ms: int
) -> dict[str, list[Pointers]]:
    """All current nodes of these owners, from an up-to-date server. Each has its own node first, GONE
    if it does not exist. Raises `Retry`, and `Stop` for an invalid name."""
    by_owner: dict[str, list[Pointers]] = {owner: [] for owner in owners}
    tops = {paths.node(owner): owner for owner in by_owner}
    client.settle(paths.ledgers)
    for nodes in walk(client, list(tops)):
        for node in nodes:
            pointers = _pointers(paths, node, seen_ms)
            own = tops.get(node.path)
            if own is not None and not by_owner[own]:
                by_owner[own].append(_own(pointers, own))
            elif pointers.status and pointers.owner in by_owner and pointers.owner != own:
                by_owner[pointers.owner].append(pointers)
    return by_owner


def _own(pointers: Pointers, owner: str) -> Pointers:
    """The node as the owner's own: a node READABLE as that of another owner means that this owner has none."""
    if pointers.owner == owner:
        return pointers
    mine = pointers._replace(owner=owner, name="", ledgers=(), dropped=(), copies=(), elsewhere=False)
    return mine._replace(status=OwnerStatus.GONE, version=-1) if pointers.status is OwnerStatus.READABLE else mine


def _pointers(paths: PulsarPaths, node: Node, seen_ms: int) -> Pointers:
    if node.stat:
        pointers = pointers_of(paths, node.path, node.data, node.stat, seen_ms)
        return pointers or gone(paths, node.path, node.zxid, seen_ms)
    build = gone if node.error == GONE else forbidden
    return build(paths, node.path, node.zxid, seen_ms)


def _together(above: Iterable[tuple[str, int]]) -> Iterator[list[str]]:
    """Nodes to list with one request: a response should stay at a few MB."""
    some: list[str] = []
    names = 0
    for path, children in above:
        if some and (names + children > _NAMES_TOGETHER or len(some) >= _LISTINGS):
            yield some
            some, names = [], 0
        some.append(path)
        names += children
    if some:
        yield some


def _below(client: ZooKeeperClient, paths: Sequence[str]) -> list[str]:
    lists, _ = client.listings(paths)
    return [f"{path}/{name.decode()}" for path, names in zip(paths, lists, strict=True) for name in names]


__all__ = ["FORBIDDEN", "GONE", "PACE", "Node", "below", "owned", "read", "walk"]
