"""Who owns a ledger and what owners point to: the two sides between which a cluster forgets.

A ledger names its owner in its custom metadata (Pulsar: LedgerMetadataUtils.java). An owner points to its ledgers in
znodes of its own: a managed ledger, its cursors, a schema locator (MLDataFormats.proto, SchemaStorageFormat.proto).
A ledger that no node points to is forgotten, or so new that it is not listed yet.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple
from urllib.parse import quote_plus

from trueup.state.deletion.offloads import Copy

SCHEMA = "schema:"
"""Before the id of a schema where owners are named: schemas and managed ledgers are called alike."""


class Component(IntEnum):
    """What a ledger is for, as it says itself. Of UNKNOWN ones nothing is ever decided."""

    UNKNOWN = 0
    DATA = 1
    CURSOR = 2
    COMPACTED = 3
    SCHEMA = 4
    DELAYED = 5


class Claim(NamedTuple):
    """Whose a ledger says it is. ``owner``: as in `Pointers`. ``name``: the cursor of a cursor ledger, url-encoded."""

    component: Component
    owner: str = ""
    name: str = ""


NOBODY = Claim(Component.UNKNOWN)
LONGEST = 4_096
"""Characters of an owner and a cursor: more than the path of any node that Pulsar makes."""
_CURSOR = "pulsar/cursor"
_OF_OTHERS = frozenset({
    "pulsar/compactedTopic", "pulsar/schemaId", "pulsar/delayedIndexBucketKey", "pulsar/delayedIndexTopic",
    "pulsar/delayedIndexCursor",
})  # fmt: skip
"""Keys that Pulsar never writes on a ledger of a managed ledger's data or cursors."""


class Status(IntEnum):
    """Of a node that points to ledgers."""

    GONE = 0
    READABLE = 1
    UNREADABLE = 9


class Pointers(NamedTuple):
    """One node that points to ledgers, all of it, as it was read at ``version``. Times in ms since the epoch.

    ``path``: of the node. ``owner``: the managed ledger (``tenant/namespace/persistent/topic``, the topic url-encoded,
    also of its cursors), or `SCHEMA` and the id of a schema. ``name``: of the cursor, url-encoded; empty for others.
    ``ledgers``: every ledger it points to, in order. ``dropped``: those of them whose copy in BookKeeper it counts as
    deleted, because a complete one is in tiered storage. ``elsewhere``: a cursor that keeps its position in a ledger:
    what its node says of the compacted ledger may be old. ``error``: why it is unreadable, with node and byte.
    ``copies``: in tiered storage, of its ledgers; the journal does not have them, as they are always asked for afresh.
    """

    path: str
    owner: str
    name: str
    status: Status
    version: int
    mzxid: int
    seen_ms: int
    ledgers: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()
    elsewhere: bool = False
    error: str = ""
    copies: tuple[Copy, ...] = ()


def claim_of(custom: Mapping[str, bytes]) -> Claim:
    """What custom metadata says; `NOBODY` for what is not Pulsar's, of a component that is not known, or no text of one
    line and at most `LONGEST` characters."""
    try:
        said = {key: value.decode() for key, value in custom.items() if key != "pulsar/compactedTo"}
    except UnicodeDecodeError:
        return NOBODY
    claim = _claim(said)
    named = claim.owner + claim.name
    return NOBODY if "\n" in named or len(named) > LONGEST else claim  # line by line is how names are kept


def pulsars(custom: Mapping[str, bytes]) -> bool:
    """Whether custom metadata say in any way that the ledger is Pulsar's, or cannot be read so far as to tell: a key
    that is no UTF-8, an application that is none. A component that is not known here is Pulsar's too."""
    application = custom.get("application", b"").decode(errors="replace").lower()
    if "pulsar" in application or "\ufffd" in application:
        return True
    return any("\ufffd" in key or key.lower().startswith("pulsar/") for key in custom)


def _claim(said: Mapping[str, str]) -> Claim:
    if said.get("application") != "pulsar":
        return NOBODY
    component, owner = said.get("component"), said.get("pulsar/managed-ledger", "")
    if component == "managed-ledger" and owner and not said.keys() & _OF_OTHERS:
        # The presence of the key decides: a cursor without a name is a cursor.
        component_of = Component.CURSOR if _CURSOR in said else Component.DATA
        return Claim(component_of, owner, said.get(_CURSOR, ""))
    if component == "compacted-ledger" and said.get("pulsar/compactedTopic"):
        return Claim(Component.COMPACTED, managed_ledger(said["pulsar/compactedTopic"]))
    if component == "schema" and said.get("pulsar/schemaId"):
        return Claim(Component.SCHEMA, SCHEMA + said["pulsar/schemaId"])
    if component == "delayed-index-bucket":
        topic, name = said.get("pulsar/delayedIndexTopic", ""), said.get("pulsar/delayedIndexCursor", "")
        return Claim(Component.DELAYED, managed_ledger(topic), encoded(name))  # of cursor ledgers it is encoded
    return NOBODY


def home(owner: str) -> str:
    """Owners of one home are kept in one place. The path of a node may not tell whether it belongs to the topic
    ``persistent`` or to one in a namespace of that name (`connectors.pulsar.layout`), so both have the same."""
    words = owner.split("/", 4)
    return "/".join(words[:4]) if words[2:4] == ["persistent", "persistent"] else owner


def managed_ledger(topic: str) -> str:
    """The managed ledger of a topic, ``domain://tenant/namespace/name`` (TopicName.getPersistenceNamingEncoding). Old
    names have a cluster before the namespace, segments a range behind the name; one in another form stays as it is."""
    domain, found, rest = topic.partition("://")
    parts = rest.split("/", 3)
    if not found or len(parts) < 3:
        return topic
    at = 2 if domain == "segment" else len(parts) - 1
    return "/".join([*parts[:at], domain, encoded(parts[at]), *parts[at + 1 :]])


def encoded(name: str) -> str:
    """A name as it stands in znode paths (Codec.java: Java's URLEncoder)."""
    return quote_plus(name, safe="*").replace("~", "%7E")
