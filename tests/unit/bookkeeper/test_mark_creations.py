"""The operations of many marks at once are those of single ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup.connectors.bookkeeper.metadata import mark_codec
from trueup.connectors.bookkeeper.metadata.layout import LARGEST_ID, BookKeeperPaths, LedgerLayout
from trueup.connectors.bookkeeper.placement.mark_creations import MarkOrder, creations
from trueup.connectors.zookeeper.requests import check, creation

ids = st.one_of(st.integers(0, 70_000), st.integers(2**31 - 3, 2**31 + 3), st.integers(0, LARGEST_ID))
bookies = st.sampled_from([(), ("a:1",), ("/ledgers/0000:1", "b%b:1")])
orders = st.builds(MarkOrder, ids, st.integers(0, 2**31 - 1), bookies, st.sampled_from([-1, 5, 1787000000000]))


def made(path: str, data: bytes) -> bytes:
    return creation(path, data, b"the access control list")


@pytest.mark.parametrize("layout", [LedgerLayout.HYBRID, LedgerLayout.LONG, LedgerLayout.FLAT])
@given(st.lists(orders, max_size=20))
def test_they_are_those_of_single_marks(layout: LedgerLayout, some: list[MarkOrder]) -> None:
    paths = BookKeeperPaths("/ledgers", layout)
    assert creations(paths, made, some) == [
        check(paths.ledger(order.ledger), order.version)
        + made(paths.mark_parent(order.ledger), b"")
        + made(paths.mark(order.ledger), mark_codec.encode(order.replicas, order.ctime_ms))
        for order in some
    ]
