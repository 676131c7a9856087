"""Owners of ledgers and their references: the two sides whose difference shows unreferenced ledgers.

A ledger names its owner in its custom metadata (Pulsar: LedgerMetadataUtils.java). An owner references its ledgers in
znodes: a managed ledger, its cursors, a schema locator (MLDataFormats.proto, SchemaStorageFormat.proto).
A ledger that no node references is either unreferenced for good, or so new that it is not listed yet.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple
from urllib.parse import quote_plus

from trueup.state.deletion.offloads import OffloadedCopy

SCHEMA = "schema:"
"""Prefix of the ids of schemas among owners: schemas and managed ledgers can have the same name."""


class Component(IntEnum):
    """The purpose of a ledger according to its metadata. No decision is ever made about UNKNOWN ones."""

    UNKNOWN = 0
    DATA = 1
    CURSOR = 2
    COMPACTED = 3
    SCHEMA = 4
    DELAYED = 5


class Claim(NamedTuple):
    """The owner according to the ledger."""

    component: Component
    owner: str = ""
    """The owner in the form of `Pointers.owner`; empty if it is unknown."""
    name: str = ""
    """The url-encoded name of the cursor of a cursor ledger or of an index of delayed messages; empty for others."""


NO_CLAIM = Claim(Component.UNKNOWN)
LONGEST = 4_096
"""Maximum characters of an owner and a cursor: more than the path of any node that Pulsar creates."""
_CURSOR = "pulsar/cursor"
_OF_OTHERS = frozenset(
    {
        "pulsar/compactedTopic",
        "pulsar/schemaId",
        "pulsar/delayedIndexBucketKey",
        "pulsar/delayedIndexTopic",
        "pulsar/delayedIndexCursor",
    }
)
"""Keys that Pulsar never writes to a data or cursor ledger of a managed ledger."""


class OwnerStatus(IntEnum):
    """Status of a node that references ledgers."""

    GONE = 0
    READABLE = 1
    SHADOW = 2
    """The node of a shadow topic (PIP-180), which owns no ledger. Its list is an old one of its source, so it neither
    keeps ledgers nor shows that one is missing. Whoever may change a topic's properties can make a shadow of it, so
    nothing is deleted of a ledger that names the topic as its owner."""
    UNREADABLE = 9


class Pointers(NamedTuple):
    """One node that references ledgers, with all of its references."""

    path: str
    """The path of the node."""
    owner: str
    """The managed ledger, ``tenant/namespace/persistent/topic`` with the topic url-encoded, also for the nodes of its
    cursors; or `SCHEMA` followed by the id of a schema."""
    name: str
    """The url-encoded name of the cursor; empty for other nodes."""
    status: OwnerStatus
    version: int
    """The version of the node when it was read; -1 if the node does not exist or may not be read."""
    mzxid: int
    seen_ms: int
    """When the node was read, ms since the epoch."""
    ledgers: tuple[int, ...] = ()
    """The ids of all referenced ledgers, in ascending order."""
    dropped: tuple[int, ...] = ()
    """The referenced ledgers that the owner records as deleted from BookKeeper, because a complete offload exists."""
    elsewhere: bool = False
    """Whether this is the node of a cursor that stores its position in a ledger. If so, the compacted ledger in the
    node may be outdated."""
    error: str = ""
    """Why the node is UNREADABLE or SHADOW; otherwise empty. If the node cannot be decoded, the text names the path and
    the byte."""
    copies: tuple[OffloadedCopy, ...] = ()
    """The offloads of the ledgers. They are not in the journal, because they are always read again."""


def namespace_of(owner: str) -> str:
    """Tenant and namespace of an owner; empty if it is unknown."""
    return "/".join(owner.removeprefix(SCHEMA).split("/")[:2])


def claim_of(custom: Mapping[str, bytes]) -> Claim:
    """The claim in custom metadata; `NO_CLAIM` for metadata that are not Pulsar's, name an unknown component, or are
    not one line of text of at most `LONGEST` characters."""
    try:
        metadata = {key: value.decode() for key, value in custom.items() if key != "pulsar/compactedTo"}
    except UnicodeDecodeError:
        return NO_CLAIM
    claim = _claim(metadata)
    named = claim.owner + claim.name
    return NO_CLAIM if "\n" in named or len(named) > LONGEST else claim  # names are stored one per line


def pulsars(custom: Mapping[str, bytes]) -> bool:
    """Whether the ledger is or may be Pulsar's according to its custom metadata. True also for unreadable metadata (a
    key that is not UTF-8, an unknown application) and for unknown components."""
    application = custom.get("application", b"").decode(errors="replace").lower()
    if "pulsar" in application or "\ufffd" in application:
        return True
    return any("\ufffd" in key or key.lower().startswith("pulsar/") for key in custom)


def _claim(metadata: Mapping[str, str]) -> Claim:
    if metadata.get("application") != "pulsar":
        return NO_CLAIM
    component, owner = metadata.get("component"), metadata.get("pulsar/managed-ledger", "")
    if component == "managed-ledger" and owner and not metadata.keys() & _OF_OTHERS:
        # Only the presence of the key counts: a cursor may have an empty name.
        component_of = Component.CURSOR if _CURSOR in metadata else Component.DATA
        return Claim(component_of, owner, metadata.get(_CURSOR, ""))
    if component == "compacted-ledger" and metadata.get("pulsar/compactedTopic"):
        return Claim(Component.COMPACTED, managed_ledger(metadata["pulsar/compactedTopic"]))
    if component == "schema" and metadata.get("pulsar/schemaId"):
        return Claim(Component.SCHEMA, SCHEMA + metadata["pulsar/schemaId"])
    if component == "delayed-index-bucket":
        topic, name = metadata.get("pulsar/delayedIndexTopic", ""), metadata.get("pulsar/delayedIndexCursor", "")
        return Claim(Component.DELAYED, managed_ledger(topic), encoded(name))  # cursor ledgers encode it already
    return NO_CLAIM


def home(owner: str) -> str:
    """The bucket key of an owner. The path of a node does not show whether it belongs to the topic ``persistent`` or
    to a topic in a namespace of that name (`connectors.pulsar.layout`), so both have the same key."""
    words = owner.split("/", 4)
    return "/".join(words[:4]) if words[2:4] == ["persistent", "persistent"] else owner


def above(owner: str) -> list[str]:
    """The directories of owners that contain this one, the highest first."""
    words = owner.split("/")
    return ["/".join(words[:size]) for size in range(1, len(words))]


def is_directory(owner: str) -> bool:
    """Whether nodes with this owner are directories of owners: tenants, namespaces, domains. Every owner in such a
    directory is unknown while the directory cannot be read."""
    words = owner.split("/")
    if owner.startswith(SCHEMA):
        return len(words) < 3
    five = words[2:3] == ["segment"] or (words[2:3] != ["persistent"] and words[3:4] == ["persistent"])
    return len(words) < (5 if five else 4)


def managed_ledger(topic: str) -> str:
    """The managed ledger of a topic, ``domain://tenant/namespace/name`` (TopicName.getPersistenceNamingEncoding). Old
    names have a cluster before the namespace, segments a range after the name; any other form is returned as it is."""
    domain, separator, rest = topic.partition("://")
    parts = rest.split("/", 3)
    if not separator or len(parts) < 3:
        return topic
    at = 2 if domain == "segment" else len(parts) - 1
    return "/".join([*parts[:at], domain, encoded(parts[at]), *parts[at + 1 :]])


def encoded(name: str) -> str:
    """A name as encoded in znode paths (Codec.java: Java's URLEncoder)."""
    return quote_plus(name, safe="*").replace("~", "%7E")
