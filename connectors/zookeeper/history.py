"""Verifies that a ZooKeeper has the observed history. A ZooKeeper that was restored from an older copy assigns the same
zxids and ledger ids a second time, so observations must not be compared with it."""

from collections.abc import Mapping

from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.connectors.zookeeper.errors import FORBIDDEN, GONE, unread
from trueup.state.common.errors import Retry, Stop

_TODO = (
    "nothing is changed; if ZooKeeper was restored from a copy or replaced on purpose, stop Trueup and run "
    "`trueup journal rebuild`"
)


class Rewound(Stop):
    """The history of this ZooKeeper differs from the observed history."""


class Missed(Retry):
    """A change without an event: other changes may also have been missed."""


def ensure_later(zxid: int, reached: int) -> None:
    """Raise `Rewound` if an up-to-date server is at a zxid before an observed one."""
    if zxid < reached:
        raise Rewound(f"ZooKeeper at zxid {reached:#x} or later, as observed", f"{zxid:#x}", _TODO)


def ensure_instance(observed: str, found: str) -> None:
    """Raise `Rewound` if the INSTANCEID of a cluster differs from the observed one. ``observed`` empty: none."""
    if observed and observed != found:
        raise Rewound(f"the BookKeeper cluster with INSTANCEID {observed}", found or "none", _TODO)


def ensure_deleted(client: ZooKeeperClient, missing: Mapping[str, int]) -> None:
    """Raise `Rewound` if one of these absent znodes was not deleted after its observed write at this zxid: the parent
    znode has the zxid of the last creation or deletion of a child. Raises `Forbidden` if a parent may not be read."""
    level, hidden = dict(missing), list[str]()
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
            elif part.size[row] >= 0 and (pzxid := part.stat(row).pzxid) < above[name]:
                raise rewound(f"a znode below {name}", above[name], pzxid)
            elif part.size[row] == FORBIDDEN:
                hidden.append(name)
    if hidden:
        raise unread("the parents of deleted ledgers", hidden)


def rewound(path: str, observed: int, found: int) -> Rewound:
    """The error for a znode whose last write is older than an observed write. ``observed``, ``found``: the zxids of
    these writes."""
    expected = f"{path} as written or deleted at zxid {observed:#x} or later"
    return Rewound(expected, f"a write at {found:#x}", _TODO)
