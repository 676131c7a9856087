"""The references of one znode, as `state.deletion.owners.Pointers`."""

from trueup.connectors.pulsar import metadata
from trueup.connectors.pulsar.layout import NodeKind, NodeLocation, PulsarPaths
from trueup.connectors.pulsar.metadata import ListedLedgers
from trueup.connectors.zookeeper.requests import Stat
from trueup.state.common.errors import BadBytes
from trueup.state.deletion.owners import OwnerStatus, Pointers

_EXPECTED = "a managed ledger or a cursor at a path of Pulsar"


def place_of(paths: PulsarPaths, path: str, data: bytes) -> NodeLocation:
    """The type and owner of the node at this path."""
    first, *others = places = paths.places(path)
    if not others or not data:
        return places[-1]
    return next((place for place in places if _decodes(place.kind, data, path)), first)


def pointers_of(paths: PulsarPaths, path: str, data: bytes, stat: Stat, seen_ms: int) -> Pointers | None:
    """The references of this node; None for an empty node that is only a directory. Never raises: an unreadable or
    ambiguous node is UNREADABLE."""
    place = place_of(paths, path, data)
    if not data and place.kind in (NodeKind.AMBIGUOUS, NodeKind.SCHEMA):
        return None
    if not data and stat.version > 0 and place.kind is NodeKind.MANAGED_LEDGER:
        return _emptied(
            Pointers(path, place.owner, place.name, OwnerStatus.UNREADABLE, stat.version, stat.mzxid, seen_ms)
        )
    plain = Pointers(path, place.owner, place.name, OwnerStatus.READABLE, stat.version, stat.mzxid, seen_ms)
    try:
        listed, elsewhere = _decoded(place.kind, data, path)
    except BadBytes as error:
        return plain._replace(status=OwnerStatus.UNREADABLE, error=str(error))
    if listed.source:
        why = f"expected a topic that owns ledgers; found a shadow topic of {listed.source[:200]}; inspect the source"
        return plain._replace(status=OwnerStatus.SHADOW, error=why)
    return plain._replace(ledgers=listed.ledgers, dropped=listed.dropped, copies=listed.copies, elsewhere=elsewhere)


def _emptied(node: Pointers) -> Pointers:
    """A managed ledger is created empty (MetaStoreImpl), and every later write lists at least its current ledger."""
    error = BadBytes(node.path, 0, f"a list of ledgers at version {node.version}", "no data", metadata.REMEDY)
    return node._replace(error=str(error))


def gone(paths: PulsarPaths, path: str, zxid: int, seen_ms: int) -> Pointers:
    """A node that does not exist, as of ``zxid``."""
    place = paths.places(path)[0]
    return Pointers(path, place.owner, place.name, OwnerStatus.GONE, -1, zxid, seen_ms)


def forbidden(paths: PulsarPaths, path: str, mzxid: int, seen_ms: int) -> Pointers:
    """A node without read permission. ``mzxid``: the mzxid of its last known state, which must not win over later
    ones."""
    place = paths.places(path)[0]
    error = f"expected permission to read {path}; found none; grant it to this identity in the znode's ACL"
    return Pointers(path, place.owner, place.name, OwnerStatus.UNREADABLE, -1, mzxid, seen_ms, error=error)


def _decodes(kind: NodeKind, data: bytes, path: str) -> bool:
    try:
        _decoded(kind, data, path)
    except BadBytes:
        return False
    return True


def _decoded(kind: NodeKind, data: bytes, path: str) -> tuple[ListedLedgers, bool]:
    if kind is NodeKind.MANAGED_LEDGER:
        return metadata.managed_ledger(data, path), False
    if kind is NodeKind.CURSOR:
        return metadata.cursor(data, path)
    if kind is NodeKind.SCHEMA:
        return metadata.schema(data, path), False
    raise BadBytes(
        path, 0, _EXPECTED, f"{len(data)} bytes", "report its path as a bug; nothing of its owner is deleted"
    )
