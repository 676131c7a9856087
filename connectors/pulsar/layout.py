"""Where Pulsar keeps what points to ledgers in ZooKeeper: paths and owners, both ways.

Sources: MetaStoreImpl, TopicName.getPersistenceNamingEncoding, BookkeeperSchemaStorage. A managed ledger is
``tenant/namespace/persistent/topic``; ``tenant/cluster/namespace/persistent/topic`` before namespaces lost their
cluster; ``tenant/namespace/segment/topic/range`` since 5.0. Its children are its cursors. Where a topic or a namespace
of the old form is called ``persistent``, the path of a node has two readings, and its data decide.
"""

import re
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from trueup.state.common.errors import Stop
from trueup.state.deletion.owners import SCHEMA

_NODE = re.compile(r"(?!\.{1,2}(?:/|\Z))[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]+\Z")
"""One level of a path that ZooKeeper takes (PathUtils)."""
_TWOFOLD = ["persistent", "persistent"]
"""Third and fourth level where the topic ``persistent`` and a namespace of that name with its cluster look alike."""


class Kind(Enum):
    """What a node is. STRANGE: it may be a directory, a managed ledger or a cursor; its path does not tell."""

    MANAGED_LEDGER = "managed ledger"
    CURSOR = "cursor"
    SCHEMA = "schema"
    STRANGE = "strange"


class Place(NamedTuple):
    """Whose a node is: ``owner`` and ``name`` as in `state.deletion.owners.Pointers`."""

    kind: Kind
    owner: str
    name: str = ""


@dataclass(frozen=True)
class Paths:
    """All paths under ``root``: empty, or the path at the end of metadataStoreUrl."""

    root: str = ""

    @cached_property
    def ledgers(self) -> str:
        """Top of the managed ledgers."""
        return f"{self.root}/managed-ledgers"

    @cached_property
    def schemas(self) -> str:
        """Top of the schemas."""
        return f"{self.root}/schemas"

    def places(self, path: str) -> tuple[Place, ...]:
        """What the node at this path, which is below one of both tops, may be. The first holds for a node whose data
        decide nothing, the last for one without data."""
        if path.startswith(f"{self.schemas}/"):
            return (Place(Kind.SCHEMA, SCHEMA + path[len(self.schemas) + 1 :]),)
        words = path[len(self.ledgers) + 1 :].split("/")
        if words[2:4] != _TWOFOLD:
            return (self._place(words, _levels(words)),)
        topic = self._place(words, 4)
        old = Place(Kind.STRANGE, topic.owner) if len(words) == 4 else self._place(words, 5)
        return (topic, old) if len(words) <= 5 else (old,)

    def _place(self, words: list[str], size: int) -> Place:
        """``size``: how many levels the name of the managed ledger has, 0 if the path does not tell."""
        owner = "/".join(words[: size or len(words)])
        if not size or len(words) < size:
            # Of a managed ledger in either form the name has at most five levels; below are cursors.
            return Place(Kind.STRANGE, "/".join(words[:5]))
        if len(words) == size:
            return Place(Kind.MANAGED_LEDGER, owner)
        return Place(Kind.CURSOR, owner, words[-1]) if len(words) == size + 1 else Place(Kind.STRANGE, owner)

    def node(self, owner: str) -> str:
        """Path of an owner's node. Raises `Stop` for a name that no node can have."""
        top, name = (self.schemas, owner.removeprefix(SCHEMA)) if owner.startswith(SCHEMA) else (self.ledgers, owner)
        if not all(map(_NODE.match, name.split("/"))):
            raise Stop("the name of a managed ledger or a schema", repr(owner[:200]), "look at the ledger that says so")
        return f"{top}/{name}"


def _levels(words: list[str]) -> int:
    """How many levels the name of the managed ledger has, 0 if the path does not tell."""
    if words[2:3] == ["persistent"]:
        return 4
    return 5 if words[2:3] == ["segment"] or words[3:4] == ["persistent"] else 0
