"""Checks of ledgers in BookKeeper by the responses of their bookies."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace

import pytest

from tests.offloaded import offloaded
from trueup.connectors.bookkeeper.deletion.presence import PresenceAnswer
from trueup.connectors.bookkeeper.metadata.queries import Registered
from trueup.connectors.pulsar.offload_verify import OffloadFacts, Tiered
from trueup.connectors.s3.store import BucketLocation, Head
from trueup.state.bookkeeper.ledgers import MANY, Ledgers, row
from trueup.state.common.errors import Stop
from trueup.state.deletion.offloads import ObjectPair, OffloadedCopy
from trueup.state.read_priority.copies import CopyState
from trueup.state.read_priority.tiers import LedgerInfo
from trueup.streams.read_priority import copies
from trueup.streams.read_priority.copies import CopyChecker, LedgerToCheck

BOOKIES = ("a", "b", "c", "d")


class FakeMetadata:
    """A cluster with one ledger."""

    paths = SimpleNamespace()

    def __init__(self, found: Ledgers) -> None:
        self.found = found

    def session(self) -> None:
        """No session is needed."""

    def read(self, ledgers: Sequence[int]) -> Ledgers:
        return self.found


def answering(held: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the bookies in ``held`` say that they have every ledger, and the others that they have none."""

    def presence(asked: Mapping[int, Sequence[str]], *_: object, **__: object) -> object:
        return {
            ledger: {one: PresenceAnswer.HELD if one in held else PresenceAnswer.GONE for one in members}
            for ledger, members in asked.items()
        }

    monkeypatch.setattr(copies, "presence", presence)
    registered = Registered(dict.fromkeys(BOOKIES, 1), {}, set(), {}, {})
    monkeypatch.setattr(copies.queries, "registered", lambda *_: registered)


def state_of(
    entries: int, held: str, monkeypatch: pytest.MonkeyPatch, ensembles: Sequence[Sequence[str]] = (BOOKIES,)
) -> CopyState:
    """The state of a ledger on four bookies, of which those in ``held`` have it; two hold each entry."""
    answering(held, monkeypatch)
    cluster = FakeMetadata(row(7, *ensembles, quorum=2, entries=entries))
    checker = CopyChecker(cluster, Tiered({}), lambda: None, lambda: 1)  # type: ignore[arg-type]
    wanted = LedgerToCheck("t/n/a", "t/n/a", "t/n/persistent/a", LedgerInfo(7, 1, 10, 1))
    checker.check([wanted], 1, 0, lambda _: False)
    (found,) = checker.of([wanted])
    return found.bookkeeper.state


@pytest.mark.parametrize(
    ("entries", "held", "expected"),
    [
        (1, "ab", CopyState.WHOLE),
        (1, "b", CopyState.WHOLE),
        (1, "cd", CopyState.GONE),
        (2, "ab", CopyState.WHOLE),
        (3, "ab", CopyState.GONE),
        (4, "abc", CopyState.WHOLE),
        (4, "bc", CopyState.GONE),
        (0, "", CopyState.WHOLE),
        (9, "ab", CopyState.GONE),
        (MANY, "ab", CopyState.GONE),
    ],
)
def test_a_write_set_that_no_entry_has_is_not_missing(
    entries: int, held: str, expected: CopyState, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert state_of(entries, held, monkeypatch) is expected


@pytest.mark.parametrize(("held", "expected"), [("ac", CopyState.WHOLE), ("ab", CopyState.GONE)])
def test_of_a_ledger_whose_last_ensemble_has_no_entry_the_others_count(
    held: str, expected: CopyState, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert state_of(0, held, monkeypatch, [BOOKIES, ("e", "f", "g", "h")]) is expected


class WholeCopies:
    """Stores in which every copy is whole and was read."""

    def store(self, _copy: OffloadedCopy) -> None:
        """Every copy is in a store."""

    def read(self, _copy: OffloadedCopy) -> bool:
        return True

    def verify(self, _copy: OffloadedCopy, _facts: OffloadFacts) -> None:
        """Every copy is whole."""


@pytest.mark.parametrize("first", ["a", "b"])
def test_each_topic_has_the_copy_that_it_records(first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answering("abcd", monkeypatch)
    cluster = FakeMetadata(row(7, BOOKIES, quorum=2))
    checker = CopyChecker(cluster, WholeCopies(), lambda: None, lambda: 1)  # type: ignore[arg-type]
    copy = OffloadedCopy(ObjectPair("00000000-0000-4000-8000-000000000000", 7), True, bucket="bucket")
    offloaded_to = {"a": copy, "b": None}
    wanted = [
        LedgerToCheck(
            f"t/n/{one}", f"t/n/{one}", f"t/n/persistent/{one}", LedgerInfo(7, 1, 10, 1, copy=offloaded_to[one])
        )
        for one in sorted(offloaded_to, key=lambda one: one != first)
    ]
    checker.check(wanted, 9, 0, lambda _: False)
    found = {one.part: one.tiered.state for one in checker.of(wanted)}
    assert found == {"t/n/a": CopyState.WHOLE, "t/n/b": CopyState.ABSENT}


class FakeStore:
    """A store with the objects of a ledger that names no owner."""

    place = BucketLocation("bucket")
    objects = offloaded([b"x" * 9] * 3, owner="")

    def _of(self, key: str) -> bytes:
        return self.objects.index if key.endswith("-index") else self.objects.data

    def head(self, key: str) -> Head:
        return Head(len(self._of(key)), 1, "tag", {"s3managedledgeroffloaderformatversion": "1"})

    def read(self, key: str, offset: int, count: int, tag: str) -> bytes:
        return self._of(key)[offset : offset + count]


def test_a_copy_without_an_owner_is_whole_for_reads_but_proves_no_owner() -> None:
    copy = OffloadedCopy(ObjectPair("00000000-0000-4000-8000-000000000000", 7), True, bucket="bucket")
    facts, stores = OffloadFacts("t/n/persistent/a", 2, 27), {"a": FakeStore()}
    Tiered(stores, untagged=True).verify(copy, facts)  # type: ignore[arg-type]
    with pytest.raises(Stop, match="managed ledger"):
        Tiered(stores).verify(copy, facts)  # type: ignore[arg-type]
