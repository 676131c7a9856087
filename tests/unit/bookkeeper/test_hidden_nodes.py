"""Nodes of BookKeeper that may not be read are never taken for absent ones."""

import struct
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from trueup.connectors.bookkeeper.bookie.reader import Bookies
from trueup.connectors.bookkeeper.deletion.presence import PresenceAnswer, presence
from trueup.connectors.bookkeeper.metadata import queries
from trueup.connectors.bookkeeper.metadata.addresses import Address
from trueup.connectors.bookkeeper.metadata.feeds import LedgerFeed
from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths, ZnodeKind
from trueup.connectors.bookkeeper.metadata.published import JournalContent
from trueup.connectors.zookeeper.client import FAST, Pace
from trueup.connectors.zookeeper.errors import FORBIDDEN, GONE, Forbidden, unread
from trueup.connectors.zookeeper.history import Rewound, ensure_deleted
from trueup.connectors.zookeeper.requests import Znodes, missing
from trueup.state.common.errors import Retry
from trueup.streams.bookkeeper import bookie_checks
from trueup.streams.bookkeeper.cluster import hidden
from trueup.streams.placement.repairs.auditor_role import refused

PATHS = BookKeeperPaths("/ledgers")


LEDGER = b"BookieMetadataFormatVersion\t1\n1\n1\n0\n0\ta:1\n"
STAT = struct.pack("!qqqqiiiqiiq", 1, 5, 0, 0, 0, 0, 0, 0, len(LEDGER), 0, 1)


class Nodes:
    """A client by which these nodes may not be read. ``older``: nodes without a child since zxid 1. All ledgers but
    those exist."""

    def __init__(self, *forbidden: str, older: Sequence[str] = ()) -> None:
        self._forbidden, self._older = forbidden, older

    def multi_read(self, parent: str, names: Sequence[bytes], pace: Pace = FAST) -> Iterator[Znodes]:
        for name in names:
            path = f"{parent}/{name.decode()}"
            if path not in self._forbidden and PATHS.classify(path)[0] is ZnodeKind.LEDGER:
                yield Znodes(LEDGER + STAT, np.zeros(1, np.int64), np.array([len(LEDGER)]), 9)
                continue
            if path in self._older:
                yield Znodes(bytes(60) + (1).to_bytes(8, "big"), np.zeros(1, np.int64), np.zeros(1, np.int64), 9)
            else:
                yield missing(FORBIDDEN if path in self._forbidden else GONE, 9)

    def listings(self, paths: Sequence[str]) -> tuple[list[list[bytes]], int]:
        return [[b"V_0000000001", b"V_0000000002"] for _ in paths], 9


def client(*forbidden: str, older: Sequence[str] = ()) -> Any:
    return Nodes(*forbidden, older=older)


def test_a_vote_that_may_not_be_read_is_a_vote_of_an_unknown_owner() -> None:
    found = queries.voters(client(f"{PATHS.election}/V_0000000002"), PATHS)
    assert found == [queries.Ballot(b"V_0000000002", "", None)]


def test_a_ledger_that_may_not_be_read_hides_no_other() -> None:
    found = queries.columns(client(PATHS.ledger(8)), PATHS, [7, 8, 9], 0)
    assert (found.rows.ledger.tolist(), found.forbidden) == ([7, 9], [8])


def test_a_ledger_of_which_the_permission_was_revoked_is_outdated_until_it_is_granted() -> None:
    feed = LedgerFeed(lambda _: None, JournalContent(np.array([7, 8]), np.array([5, 5])), lambda: 1, FAST)
    feed.doubt([8])
    feed.follow(client(PATHS.ledger(8)), PATHS, {})
    revoked = feed.outdated.tolist(), feed.hidden
    feed.doubt([8])
    feed.follow(client(), PATHS, {})
    assert (revoked, feed.outdated.tolist()) == (([8], 0), [])


def test_history_below_a_parent_that_may_not_be_read_is_not_confirmed() -> None:
    with pytest.raises(Forbidden, match="/ledgers/00/0000"):
        ensure_deleted(client("/ledgers/00/0000"), {"/ledgers/00/0000/L0007": 5})


def test_another_history_is_found_despite_a_parent_that_may_not_be_read() -> None:
    wanted = {"/ledgers/00/0000/L0007": 5, "/ledgers/00/0001/L0007": 5}
    with pytest.raises(Rewound):
        ensure_deleted(client("/ledgers/00/0000", older=["/ledgers/00/0001"]), wanted)


def closed(bookie: str) -> Address:
    raise unread("registrations", [f"{PATHS.available}/{bookie}"])


def test_a_bookie_whose_registration_may_not_be_read_is_silent() -> None:
    reasons: dict[tuple[int, str], str] = {}
    found = presence({7: ["b:1"]}, closed, 1.0, reasons=reasons)
    assert (found, "/ledgers/available/b:1" in reasons[7, "b:1"]) == ({7: {"b:1": PresenceAnswer.SILENT}}, True)


def test_a_read_goes_on_with_other_bookies() -> None:
    with pytest.raises(Retry, match="/ledgers/available/b:1"):
        Bookies(closed, 1.0).reads("b:1")


def test_the_check_of_connections_names_a_registration_that_may_not_be_read() -> None:
    (check,) = bookie_checks.connections(["b:1"], closed, None)
    assert (check.status, "/ledgers/available/b:1" in check.found) == ("fail", True)


def test_unknown_orders_of_operators_permit_no_changes() -> None:
    vote: Any = SimpleNamespace(orders=lambda: None, holder=lambda: SimpleNamespace(problem="no permission"))
    assert refused(vote) == "whether replication is disabled in BookKeeper is not known: no permission"


def test_nodes_that_may_not_be_read_are_a_problem() -> None:
    health: Any = SimpleNamespace(hidden_nodes=3, hidden_node="/ledgers/available/b:1")
    (problem,) = hidden(health)
    assert "found none for 3, such as /ledgers/available/b:1; grant READ" in problem


@pytest.mark.parametrize(
    ("parent", "ledger"),
    [
        ("0000/0000/0001/1170", 70_000),
        ("0/0/1/1170", 70_000),
        ("ffff/ffff/ffff/ffff", -1),
        ("0000/0000/0001", -1),
        ("0000/0000/0001/urL1", -1),
    ],
)
def test_the_levels_above_a_mark_name_its_ledger(parent: str, ledger: int) -> None:
    assert PATHS.marked_below(f"{PATHS.marks}/{parent}") == ledger
