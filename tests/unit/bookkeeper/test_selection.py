"""Selection of ledgers by bookie and namespace: bounds, and metadata that are decoded one by one."""

import pytest

from tests.property.codecs.test_bookkeeper_metadata import together
from trueup.connectors.bookkeeper.metadata import metadata
from trueup.state.bookkeeper.observations import LedgerRecord, LedgerState
from trueup.state.common.errors import Refused
from trueup.streams.bookkeeper.selection import MOST, LedgerSelection, matching, not_too_many


def record(ledger: int, *fragments: str, owner: bytes = b"t/n/persistent/a") -> LedgerRecord:
    """A ledger with these fragments of two bookies each."""
    return {
        "ledger": ledger,
        "mzxid": 1,
        "version": 0,
        "ctime_ms": 7,
        "seen_ms": 0,
        "state": int(LedgerState.CLOSED),
        "ensemble": 2,
        "quorum": 2,
        "ack_quorum": 1,
        "last_entry": 9,
        "length": 1,
        "fragments": [{"first_entry": at, "bookies": names.split()} for at, names in enumerate(fragments)],
        "custom": {"application": b"pulsar", "component": b"managed-ledger", "pulsar/managed-ledger": owner},
        "error": "",
    }


LEDGERS = [record(1, "a:1 b:1", "c:1 b:1"), record(2, "a:1 c:1", owner=b"t/m/persistent/a"), record(3, "d:1 b:1")]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(
    ("where", "chosen"),
    [
        (LedgerSelection(), [True, True, True]),
        (LedgerSelection(bookie="c:1"), [True, True, False]),
        (LedgerSelection(namespace="t/n"), [True, False, True]),
        (LedgerSelection("c:1", "t/n"), [True, False, False]),
        (LedgerSelection(bookie="e:1"), [False, False, False]),
    ],
)
def test_any_ensemble_counts_in_each_form_of_metadata(version: int, where: LedgerSelection, chosen: list[bool]) -> None:
    """Version 2 is decoded one by one."""
    batch = together([(one, metadata.encode(one, version, b"")) for one in LEDGERS])
    assert matching(batch, where).tolist() == chosen


def test_so_many_ledgers_are_not_read_for_one_request() -> None:
    not_too_many(MOST)
    with pytest.raises(Refused, match="among at most 100,000 ledgers; found 100,001"):
        not_too_many(MOST + 1)
