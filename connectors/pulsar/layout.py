"""The layout of Pulsar's nodes that reference ledgers: paths and owners, in both directions.

Sources: MetaStoreImpl, TopicName.getPersistenceNamingEncoding, BookkeeperSchemaStorage. A managed ledger is
``tenant/namespace/persistent/topic``; ``tenant/cluster/namespace/persistent/topic`` before namespaces lost their
cluster; ``tenant/namespace/segment/topic/range`` since 5.0. Its children are its cursors. If a topic or a namespace
of the old form is named ``persistent``, the path of a node is ambiguous, and its data decide.
"""

import re
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from trueup.state.common.errors import Stop
from trueup.state.deletion.owners import SCHEMA

_NODE = re.compile(r"(?!\.{1,2}(?:/|\Z))[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]+\Z")
"""One level of a path that ZooKeeper accepts (PathUtils)."""
_TWOFOLD = ["persistent", "persistent"]
"""Third and fourth level of paths that may be the topic ``persistent`` or a namespace of that name with a cluster."""


class NodeKind(Enum):
    """The type of a node. AMBIGUOUS: a directory, a managed ledger or a cursor; its path does not show which."""

    MANAGED_LEDGER = "managed ledger"
    CURSOR = "cursor"
    SCHEMA = "schema"
    AMBIGUOUS = "ambiguous"


class NodeLocation(NamedTuple):
    """The type and owner of a node."""

    kind: NodeKind
    owner: str
    """The owner of the node, as in `state.deletion.owners.Pointers`."""
    name: str = ""
    """The name of the cursor, as in `state.deletion.owners.Pointers`; empty for other nodes."""


@dataclass(frozen=True)
class PulsarPaths:
    """All paths under one root."""

    root: str = ""
    """The path at the end of metadataStoreUrl, or empty."""

    @cached_property
    def ledgers(self) -> str:
        """Root of the managed ledgers."""
        return f"{self.root}/managed-ledgers"

    @cached_property
    def schemas(self) -> str:
        """Root of the schemas."""
        return f"{self.root}/schemas"

    @cached_property
    def policies(self) -> str:
        """Root of the namespaces' policies, in the configuration metadata store."""
        return f"{self.root}/admin/policies"

    @cached_property
    def partitioned(self) -> str:
        """Root of the partitioned topics, in the configuration metadata store (PartitionedTopicResources)."""
        return f"{self.root}/admin/partitioned-topics"

    def places(self, path: str) -> tuple[NodeLocation, ...]:
        """What the node at this path below one of the roots may be. The first applies if the node's data are not
        decisive, the last if it has no data."""
        if path.startswith(f"{self.schemas}/"):
            return (NodeLocation(NodeKind.SCHEMA, SCHEMA + path[len(self.schemas) + 1 :]),)
        words = path[len(self.ledgers) + 1 :].split("/")
        if words[2:4] != _TWOFOLD:
            return (self._place(words, _levels(words)),)
        topic = self._place(words, 4)
        old = NodeLocation(NodeKind.AMBIGUOUS, topic.owner) if len(words) == 4 else self._place(words, 5)
        return (topic, old) if len(words) <= 5 else (old,)

    def _place(self, words: list[str], size: int) -> NodeLocation:
        """``size``: number of levels in the name of the managed ledger, 0 if the path does not show it."""
        owner = "/".join(words[: size or len(words)])
        if not size or len(words) < size:
            # The name of a managed ledger in either form has at most five levels; its cursors are below.
            return NodeLocation(NodeKind.AMBIGUOUS, "/".join(words[:5]))
        if len(words) == size:
            return NodeLocation(NodeKind.MANAGED_LEDGER, owner)
        return (
            NodeLocation(NodeKind.CURSOR, owner, words[-1])
            if len(words) == size + 1
            else NodeLocation(NodeKind.AMBIGUOUS, owner)
        )

    def node(self, owner: str) -> str:
        """Path of an owner's node. Raises `Stop` for an invalid name."""
        top, name = (self.schemas, owner.removeprefix(SCHEMA)) if owner.startswith(SCHEMA) else (self.ledgers, owner)
        if not all(map(_NODE.match, name.split("/"))):
            raise Stop("the name of a managed ledger or a schema", repr(owner[:200]), "inspect its ledger")
        return f"{top}/{name}"


def _levels(words: list[str]) -> int:
    """The number of levels in the name of the managed ledger, 0 if the path does not show it."""
    if words[2:3] == ["persistent"]:
        return 4
    return 5 if words[2:3] == ["segment"] or words[3:4] == ["persistent"] else 0
