"""Reads from bookies, without bookies."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from trueup.state.read_priority.tiers import LedgerInfo
from trueup.streams.topic_reader import sources
from trueup.streams.topic_reader.sources import BookKeeperSource


def test_a_read_that_begins_during_another_one_has_its_own_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    made = iter("abc")

    class OneEntry:
        def __init__(self, bookies: str) -> None:
            self._bookies = bookies

        def read(self, first: int, _last: int | None) -> Iterator[tuple[int, str]]:
            yield first, self._bookies

    monkeypatch.setattr(sources, "Bookies", lambda *_: next(made))
    monkeypatch.setattr(sources, "Addresses", lambda *_: None)
    monkeypatch.setattr(sources.queries, "paths_of", lambda *_: SimpleNamespace())
    monkeypatch.setattr(BookKeeperSource, "_reader", lambda _self, _ledger, bookies: OneEntry(bookies))
    source = BookKeeperSource(None, "", None, print)  # type: ignore[arg-type]
    first, second = (source.read(LedgerInfo(7, 9, 9, 1), 0, None) for _ in range(2))
    during = [next(first), next(second)]
    assert [*first, *second] == []
    assert [during, [*source.read(LedgerInfo(7, 9, 9, 1), 0, None)]] == [[(0, "a"), (0, "b")], [(0, "b")]]
