"""The operations that create many marks.

Source of the protocol: ZkLedgerUnderreplicationManager.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from trueup.connectors.bookkeeper.metadata import mark_codec
from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths
from trueup.connectors.zookeeper.requests import INT, check


class MarkOrder(NamedTuple):
    """An order to mark a ledger if its metadata is unchanged."""

    ledger: int
    version: int
    """The version that the znode of the ledger must still have."""
    replicas: tuple[str, ...] = ()
    """The ids of the lost bookies; empty for a placement repair."""
    ctime_ms: int = -1
    """The field ctime of the mark, ms since the epoch; -1: omitted."""


def creations(
    paths: BookKeeperPaths, creation: Callable[[str, bytes], bytes], orders: Sequence[MarkOrder]
) -> list[bytes]:
    """For each order: a check of its ledger, and the creation of its mark and of the level above. ``creation``: the
    operation that creates a znode.

    These operations differ only in ids and versions. Everything else is built once for each text and length.
    """
    ledgers = paths.relatives(np.array([order.ledger for order in orders], np.int64))
    forms: dict[tuple[object, ...], tuple[bytes, ...]] = {}
    operations = []
    for order, ledger in zip(orders, ledgers, strict=True):
        levels, name = paths.mark_names(order.ledger)
        kind = order.replicas, order.ctime_ms, len(ledger), len(name)
        if kind not in forms:
            forms[kind] = _form(paths, creation, order, (len(ledger), len(levels), len(name)))
        guard, parent, mark, end = forms[kind]
        operations.append(
            b"".join((guard, ledger, INT.pack(order.version), parent, levels, mark, levels, b"/", name, end))
        )
    return operations


def _form(
    paths: BookKeeperPaths, creation: Callable[[str, bytes], bytes], order: MarkOrder, sizes: tuple[int, int, int]
) -> tuple[bytes, ...]:
    """The bytes before, between and after the variable parts. ``sizes``: the lengths of the ledger's path without the
    root, of the levels of the mark, and of the name of the mark."""
    ledger, levels, name = sizes
    above, path = paths.mark_parent(order.ledger), paths.mark(order.ledger)
    guard, parent = check(paths.ledger(order.ledger), order.version), creation(above, b"")
    mark = creation(path, mark_codec.encode(order.replicas, order.ctime_ms))
    parent_end, mark_end = (raw.index(of) + len(of) for raw, of in ((parent, above.encode()), (mark, path.encode())))
    between = parent[parent_end:] + mark[: mark_end - name - 1 - levels]
    return guard[: -INT.size - ledger], parent[: parent_end - levels], between, mark[mark_end:]
