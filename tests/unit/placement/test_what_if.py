"""What failures would do, read from a cluster."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import trueup.streams.placement.what_if.answer as module
from tests.configuration import parse
from trueup.connectors.bookkeeper.metadata.queries import Registered
from trueup.state.bookkeeper.ledgers import MANY, Ledgers, row
from trueup.state.placement.what_if import NOW, WhatIf
from trueup.streams.placement.what_if.answer import WhatIfAnswer, answer

SETTINGS = parse({"cluster": {"zookeeper": "127.0.0.1:2181"}})
RACKS = {"a:1": "/r1", "b:1": "/r2"}


class Client:
    """A session that is open."""

    def open(self, _wait_s: float) -> None: ...

    def shut(self) -> None: ...


def batch_of(ledgers: Ledgers) -> Any:
    """Closed ledgers of one fragment with 10 entries."""
    count = len(ledgers)
    return SimpleNamespace(
        ledgers=ledgers,
        last_entry=np.full(count, 9),
        length=np.full(count, 1_000),
        first_entry=np.zeros(count, np.int64),
        forbidden=[],
        unreadable=[],
    )


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> WhatIfAnswer:
    """The losses of racks, with a ledger on the bookies a:1 and x:1. x:1 has neither cookie nor registration."""
    there = Registered({"a:1": 1, "b:1": 1}, {}, {*RACKS}, {}, {})
    monkeypatch.setattr(module, "client_of", lambda *_: Client())
    monkeypatch.setattr(module, "locations", lambda *_: RACKS)
    monkeypatch.setattr(module.queries, "paths_of", lambda *_: None)
    monkeypatch.setattr(module.queries, "registered", lambda *_: there)
    monkeypatch.setattr(module.queries, "snapshot", lambda *_: iter([batch_of(row(7, ["a:1", "x:1"], quorum=2))]))
    return answer(SETTINGS, "rack", (), lambda _: None)


def test_a_bookie_without_cookie_and_registration_has_no_replica(found: WhatIfAnswer) -> None:
    assert (found.losses["/r1"].lost, found.losses["/r1"].one_copy) == (1, 0)


def test_a_bookie_without_cookie_and_registration_is_lost_now(found: WhatIfAnswer) -> None:
    assert (found.missing, found.losses[NOW].bookies, found.losses[NOW].one_copy) == (["x:1"], 1, 1)


def test_a_worker_copies_all_entries_of_a_striped_ledger_to_each_new_bookie() -> None:
    bookies = {"a", "b1", "b2", "c"}
    what = WhatIf({"loss": {"b1", "b2"}}, bookies, bookies, bookies)
    striped = row(7, ["a", "b1", "c", "b2"], quorum=2, entries=MANY)
    what.add(striped, np.array([9]), np.array([1_000.0]), np.array([0]))
    assert what.losses["loss"].to_copy == 2 * 1_000
