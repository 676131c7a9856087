"""Which bookie a ledger is read from if each of its bookies holds every entry."""

from collections.abc import Iterator
from typing import Any

from trueup.connectors.bookkeeper.bookie.entries import Digest, DigestType, head_of
from trueup.connectors.bookkeeper.bookie.reader import LedgerReader
from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.common.errors import Retry

DIGEST = Digest(DigestType.CRC32C)


class FakeBookies:
    """Bookies that hold every entry. ``asked``: bookie and first entry of each read; ``down``: those that end a read
    after its first entry."""

    def __init__(self, down: str = "") -> None:
        self.asked, self.down = list[tuple[str, int]](), down

    def reads(self, bookie: str) -> Any:
        bookies = self

        class Reads:
            def run(self, ledger: int, first: int, last: int) -> Iterator[tuple[int, memoryview]]:
                bookies.asked.append((bookie, first))
                for entry in range(first, last + 1):
                    if bookie == bookies.down and entry > first:
                        raise Retry(f"a response of {bookie}", "none", "retry")
                    yield entry, memoryview(DIGEST.seal(head_of(ledger, entry, -1, 0), b"%d" % entry))

        return Reads()


def read(bookies: FakeBookies, ledger: int, ensemble: list[str]) -> list[bytes]:
    record: Any = {
        "ledger": ledger,
        "state": LedgerState.CLOSED,
        "last_entry": 3,
        "quorum": len(ensemble),
        "length": 4,
        "fragments": [{"first_entry": 0, "bookies": ensemble}],
    }
    made: Any = bookies
    return [bytes(payload) for _, payload in LedgerReader(record, DIGEST, made, lambda _: None).read()]


def test_consecutive_ledgers_are_read_from_different_bookies_although_their_ensembles_rotate() -> None:
    bookies = FakeBookies()
    for ledger, ensemble in ((5, ["a", "b"]), (6, ["b", "a"]), (7, ["a", "b"]), (8, ["b", "a"])):
        assert read(bookies, ledger, ensemble) == [b"0", b"1", b"2", b"3"]
    assert bookies.asked == [("b", 0), ("a", 0), ("b", 0), ("a", 0)]


def test_a_read_goes_on_at_the_next_bookie() -> None:
    bookies = FakeBookies(down="b")
    assert read(bookies, 5, ["a", "b"]) == [b"0", b"1", b"2", b"3"]
    assert bookies.asked == [("b", 0), ("a", 1)]
