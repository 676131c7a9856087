"""Reads of a ledger that go on at the other tier where one fails."""

from collections.abc import Callable, Iterator

import pytest

from trueup.connectors.bookkeeper.bookie.codes import NoSuchEntry, NoSuchLedger
from trueup.connectors.bookkeeper.bookie.ledger_access import NoSuchMetadata
from trueup.connectors.pulsar.offload_read import NoSuchObject
from trueup.state.common.errors import BadBytes, Refused, Retry, Stop, TrueupError
from trueup.state.deletion.offloads import ObjectPair, OffloadedCopy
from trueup.state.read_priority.positions import LedgerRange
from trueup.state.read_priority.tiers import LedgerInfo, ReadPriority, Tier
from trueup.streams.topic_reader.fallback import Fallback, LostEntries, read

COUNT = 6
INFO = LedgerInfo(7, COUNT, 100, 1_000, OffloadedCopy(ObjectPair("u", 7), True))
GONE, SILENT = Refused("it", "none", "look"), Retry("it", "silence", "wait")
DENIED = Stop("it", "403", "grant the right")


class FakeTier:
    """Serves entries, except those in ``fails``. ``calls``: the first entry of each read."""

    def __init__(self, fails: dict[int, TrueupError] | None = None, count: int = COUNT) -> None:
        self.fails, self.count, self.calls = fails or {}, count, list[int]()

    def read(self, info: LedgerInfo, first: int, last: int | None) -> Iterator[tuple[int, memoryview]]:
        self.calls.append(first)
        for entry in range(first, self.count if last is None else min(last + 1, self.count)):
            if entry in self.fails:
                raise self.fails[entry]
            yield entry, memoryview(b"%d" % entry)


def served(
    bookkeeper: FakeTier,
    tiered: FakeTier,
    info: LedgerInfo = INFO,
    noted: list[Fallback] | None = None,
    decode: Callable[[int, memoryview], object] | None = None,
) -> list[tuple[int, Tier]]:
    part = LedgerRange(info, 0, info.entries - 1 if info.closed_ms else None)
    sources = {Tier.BOOKKEEPER: bookkeeper, Tier.TIERED: tiered}
    notes = noted if noted is not None else []
    found = read(part, ReadPriority.BOOKKEEPER_FIRST, sources, decode or (lambda entry, _: entry), notes.append)
    return [(one.entry, one.tier) for one in found]


def test_a_tier_that_serves_all_is_the_only_one_that_is_read() -> None:
    tiered = FakeTier()
    assert (served(FakeTier(), tiered), tiered.calls) == ([(n, Tier.BOOKKEEPER) for n in range(COUNT)], [])


@pytest.mark.parametrize("error", [GONE, SILENT])
def test_the_other_tier_goes_on_where_one_fails(error: TrueupError) -> None:
    found = served(FakeTier({3: error}), FakeTier())
    assert found == [*((n, Tier.BOOKKEEPER) for n in range(3)), *((n, Tier.TIERED) for n in range(3, COUNT))]


def test_the_first_tier_is_read_again_behind_what_only_it_has() -> None:
    found = served(FakeTier({1: GONE}), FakeTier({4: GONE}))
    assert [tier for _, tier in found] == [Tier.BOOKKEEPER, *[Tier.TIERED] * 3, *[Tier.BOOKKEEPER] * 2]


def test_entries_that_no_tier_has_are_an_error_with_their_range() -> None:
    with pytest.raises(LostEntries, match="entries 2 to entry 5 of ledger 7 from bookkeeper or tiered"):
        served(FakeTier({2: GONE}), FakeTier({2: GONE}))


def test_entries_of_a_silent_tier_are_not_lost() -> None:
    with pytest.raises(Retry):
        served(FakeTier({2: SILENT}), FakeTier({2: GONE}))


@pytest.mark.parametrize("other", [GONE, DENIED])
def test_entries_of_a_tier_that_denies_access_are_not_lost(other: TrueupError) -> None:
    with pytest.raises(Stop, match=r"403.*grant the right") as found:
        served(FakeTier({2: other}), FakeTier({2: DENIED}))
    assert not isinstance(found.value, LostEntries)


def test_entries_behind_the_end_of_every_tier_are_lost_one_by_one() -> None:
    with pytest.raises(LostEntries, match="the end after 3") as found:
        served(FakeTier(count=4), FakeTier(count=4))
    assert not found.value.whole


def of_open_ledger(confirmed: bool) -> int:
    """The number of entries that are read of an open ledger with four of them, up to the sixth."""
    part, sources = LedgerRange(LedgerInfo(7), 0, 5, confirmed), {Tier.BOOKKEEPER: FakeTier(count=4)}
    return len(list(read(part, ReadPriority.BOOKKEEPER_FIRST, sources, lambda entry, _: entry, lambda _: None)))


def test_an_open_ledger_that_ends_before_a_confirmed_entry_is_read_again_later() -> None:
    with pytest.raises(Retry, match="the end after 3"):
        of_open_ledger(confirmed=True)


def test_an_open_ledger_may_end_before_an_entry_that_is_not_confirmed() -> None:
    assert of_open_ledger(confirmed=False) == 4


def test_a_tier_that_ends_early_has_failed() -> None:
    assert [tier for _, tier in served(FakeTier(count=4), FakeTier())][-2:] == [Tier.TIERED] * 2


def test_a_fallback_is_reported_with_entry_and_reason() -> None:
    noted = list[Fallback]()
    served(FakeTier({3: GONE}), FakeTier(), noted=noted)
    assert noted == [Fallback(7, 3, Tier.BOOKKEEPER, str(GONE))]


def test_the_other_tier_is_read_where_bytes_cannot_be_decoded() -> None:
    bookkeeper = FakeTier()

    def decode(entry: int, _: memoryview) -> None:
        if entry == 3 and len(bookkeeper.calls) == 1 and not tiered.calls:
            raise BadBytes("there", 3, "it", "other bytes")

    tiered = FakeTier()
    assert [tier for _, tier in served(bookkeeper, tiered, decode=decode)] == [Tier.BOOKKEEPER] * 3 + [Tier.TIERED] * 3


def test_the_open_ledger_ends_where_its_tier_ends() -> None:
    assert len(served(FakeTier(count=4), FakeTier(), LedgerInfo(7))) == 4


def test_a_ledger_that_no_tier_has_is_lost_as_a_whole() -> None:
    with pytest.raises(LostEntries) as found:
        served(FakeTier({0: NoSuchMetadata("it", "none", "look")}), FakeTier({0: NoSuchObject("it", "none", "look")}))
    assert found.value.whole


@pytest.mark.parametrize(
    "error",
    [
        NoSuchEntry("it", "none", "look"),
        NoSuchLedger("it", "none", "look"),  # the answer of one write set or fragment
        BadBytes("there", 3, "it", "other bytes"),
    ],
)
def test_an_entry_that_no_tier_has_is_not_the_whole_ledger(error: TrueupError) -> None:
    with pytest.raises(LostEntries) as found:
        served(FakeTier({2: error}), FakeTier({2: NoSuchObject("it", "none", "look")}))
    assert not found.value.whole
