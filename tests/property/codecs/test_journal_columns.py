"""Avro bodies encoded from columns equal those of the Avro library byte for byte, and decode to the records."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.property.codecs.test_bookkeeper_metadata import SECRET, ledgers, together
from trueup.connectors.bookkeeper.metadata import metadata
from trueup.state.bookkeeper.observations import LedgerRecord
from trueup.state.deletion.lifecycle import Deletion
from trueup.state.placement.lifecycle import Repair
from trueup.streams.bookkeeper.codec import ledger_bodies
from trueup.streams.bookkeeper.topics import LEDGERS
from trueup.streams.deletion.topics import DELETIONS
from trueup.streams.journal.codec import decode, encode
from trueup.streams.journal.encode import FEW, blob, encode_all, long
from trueup.streams.journal.topic import HISTORY
from trueup.streams.placement.topics import FINDINGS, REPAIRS

longs = st.integers(-(2**63), 2**63 - 1)
ints = st.integers(-(2**31), 2**31 - 1)
REPAIR = {
    "ledger": longs,
    "stage": st.text(max_size=5),
    "rule": st.text(max_size=90),
    "version": ints,
    "since_ms": longs,
    "at_ms": longs,
    "mark_ctime_ms": longs,
    "attempts": ints,
    "next_ms": longs,
    "detail": st.text(max_size=5),
}
ACTION = {
    "at_ms": longs,
    "id": st.text(max_size=5),
    "kind": st.text(max_size=5),
    "ledger": st.none() | longs,
    "link": st.none() | st.text(max_size=5),
    "broker": st.none() | st.text(max_size=5),
    "rule": st.text(max_size=5),
    "outcome": st.text(max_size=5),
    "detail": st.text(max_size=90),
    "who": st.text(max_size=5),
}


@given(st.lists(st.tuples(ledgers(), st.sampled_from([1, 2, 3, 3, 3])), max_size=12))
def test_a_batch_of_ledgers_is_encoded_as_its_records_are(drawn: list[tuple[LedgerRecord, int]]) -> None:
    batch = together([(record, metadata.encode(record, version, SECRET)) for record, version in drawn])
    assert ledger_bodies(batch) == [encode(LEDGERS, record) for record in batch.records()]


@given(ledgers(), st.binary(max_size=40), st.integers(0, 2))
def test_a_damaged_ledger_among_others_is_encoded_as_its_record_is(
    record: LedgerRecord, damage: bytes, at: int
) -> None:
    stored = [({**record, "ledger": n}, metadata.encode(record)) for n in range(3)]
    stored[at] = (stored[at][0], damage)
    batch = together(stored)
    assert ledger_bodies(batch) == [encode(LEDGERS, one) for one in batch.records()]


@given(st.lists(st.fixed_dictionaries(REPAIR), max_size=4), st.integers(1, FEW))
def test_flat_records_are_encoded_together_as_they_are_alone(drawn: list[dict[str, Any]], times: int) -> None:
    records = drawn * times
    assert encode_all(REPAIRS, records) == [encode(REPAIRS, record) for record in records]


@given(st.lists(st.fixed_dictionaries(ACTION), max_size=4), st.integers(1, FEW))
def test_fields_that_are_null_are_encoded_together_as_they_are_alone(drawn: list[dict[str, Any]], times: int) -> None:
    records = drawn * times
    assert encode_all(HISTORY, records) == [encode(HISTORY, record) for record in records]


@given(st.lists(st.fixed_dictionaries(REPAIR), max_size=4), st.integers(1, FEW))
def test_named_tuples_are_encoded_as_mappings_are(drawn: list[dict[str, Any]], times: int) -> None:
    records = drawn * times
    assert encode_all(REPAIRS, [Repair(**record) for record in records]) == encode_all(REPAIRS, records)


def test_records_with_arrays_come_back() -> None:
    made = Deletion(1, "deletion.missing", "owner", 2, 3, 4, 5, bookies=("a:1", "b:1"))._asdict()
    record = {**made, "stage": str(made["stage"]), "bookies": ["a:1", "b:1"], "pending": []}
    assert [decode(DELETIONS, body) for body in encode_all(DELETIONS, [record] * (FEW + 1))] == [record] * (FEW + 1)


@given(longs)
def test_a_long_alone_is_a_zigzag_varint(value: int) -> None:
    raw = long(value)
    number = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(raw))
    assert (number >> 1 ^ -(number & 1), [byte >> 7 for byte in raw]) == (value, [1] * (len(raw) - 1) + [0])


def test_bytes_carry_their_length() -> None:
    assert blob(b"x" * 64) == b"\x80\x01" + b"x" * 64


def test_nothing_makes_no_bodies() -> None:
    assert (encode_all(FINDINGS, []), ledger_bodies(together([]))) == ([], [])


def test_a_batch_reads_as_the_observations_of_its_records() -> None:
    records = [record for _, _, record in _batch()]
    keys = [int.from_bytes(key, "big") for _, key, _ in _batch()]
    assert (keys, records) == ([7, 2**40], list(_batch().records()))


def _batch() -> Any:
    record: LedgerRecord = {
        "ledger": 7,
        "mzxid": 5,
        "version": 1,
        "ctime_ms": 9,
        "seen_ms": 7,
        "state": 1,
        "ensemble": 1,
        "quorum": 1,
        "ack_quorum": 1,
        "last_entry": -1,
        "length": 0,
        "fragments": [{"first_entry": 0, "bookies": ["a:1"]}],
        "custom": {},
        "error": "",
    }
    return together([({**record, "ledger": n}, metadata.encode(record)) for n in (7, 2**40)])
