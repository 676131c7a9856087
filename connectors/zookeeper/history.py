"""Whether a ZooKeeper has the history that was observed of it. One that was restored from an older copy has not: its
zxids and the ids of ledgers are given out a second time, so nothing that was observed may be compared with it."""

from collections.abc import Mapping

from trueup.connectors.zookeeper.client import Client
from trueup.connectors.zookeeper.errors import GONE
from trueup.state.common.errors import Stop

_TODO = (
    "nothing is changed; if ZooKeeper was restored from a copy, or is another one on purpose, stop Trueup and run "
    "`trueup journal begin-anew`"
)


class Rewound(Stop):
    """The history of this ZooKeeper is not the one that was observed."""


def ensure_later(found: int, reached: int) -> None:
    """Raise `Rewound` if a server that is not behind is at a zxid before one that was observed."""
    if found < reached:
        raise Rewound(f"ZooKeeper at zxid {reached:#x} or later, as was observed", f"{found:#x}", _TODO)


def ensure_instance(known: str, found: str) -> None:
    """Raise `Rewound` if a cluster has another INSTANCEID than the one that was observed. ``known`` empty: none was."""
    if known and known != found:
        raise Rewound(f"the BookKeeper cluster with INSTANCEID {known}", found or "none", _TODO)


def ensure_deleted(client: Client, missing: Mapping[str, int]) -> None:
    """Raise `Rewound` if one of these znodes, which are not there, was not deleted since it was written at this zxid:
    the znode above it tells the zxid at which a child was created or deleted last."""
    level = dict(missing)
    while level:
        above: dict[str, int] = {}
        for path, zxid in level.items():
            parent = path.rpartition("/")[0]
            if parent:
                above[parent] = max(zxid, above.get(parent, 0))
        level, names = {}, list(above)
        parts = client.multi_read("", [name[1:].encode() for name in names])
        rows = ((part, row) for part in parts for row in range(len(part)))
        for name, (part, row) in zip(names, rows, strict=True):
            if part.size[row] == GONE:
                level[name] = above[name]
            elif part.size[row] >= 0 and (found := part.stat(row).pzxid) < above[name]:
                raise rewound(f"a znode below {name}", above[name], found)


def rewound(path: str, observed: int, found: int) -> Rewound:
    """A znode that was last written before it was observed to have been. Zxids."""
    expected = f"{path} as it was written or deleted at zxid {observed:#x}, or later"
    return Rewound(expected, f"it written at {found:#x}", _TODO)
