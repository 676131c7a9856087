"""Directories of ledgers are listed in the order of their ids, whatever the order in which ZooKeeper has them."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths, LedgerLayout
from trueup.connectors.bookkeeper.metadata.queries import ledgers_of


class Tree:
    """A client that lists the parents of these paths, the last name first."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._children: dict[str, set[str]] = {}
        for path in paths:
            while path.count("/") > 1:
                parent, _, name = path.rpartition("/")
                self._children.setdefault(parent, set()).add(name)
                path = parent

    def listings(self, paths: Sequence[str]) -> tuple[list[list[bytes]], int]:
        return [sorted((n.encode() for n in self._children.get(p, ())), reverse=True) for p in paths], 1


@pytest.mark.parametrize("layout", [LedgerLayout.HYBRID, LedgerLayout.LONG, LedgerLayout.FLAT])
@given(ids=st.sets(st.integers(0, 2**63 - 1) | st.integers(2**31 - 20_000, 2**31 + 20_000) | st.integers(0, 40_000)))
def test_ledgers_are_listed_by_id(layout: LedgerLayout, ids: set[int]) -> None:
    paths = BookKeeperPaths("/ledgers", layout)
    client: Any = Tree([paths.ledger(ledger) for ledger in ids])
    found = list(ledgers_of(client, paths))
    assert [ledger for each in found for ledger in each.ids.tolist()] == sorted(ids)
    names = [f"/ledgers/{name.decode()}" for each in found for name in each.names]
    assert names == [paths.ledger(ledger) for ledger in sorted(ids)]
