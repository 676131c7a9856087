"""Ledger metadata: valid bytes are decoded, damage is reported, and bulk decoding equals decoding one by one."""

import struct
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from tests.property.codecs import metadata_pairs
from trueup.connectors.bookkeeper.messages import LedgerMetadata
from trueup.connectors.bookkeeper.metadata import bulk, metadata, queries
from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths
from trueup.connectors.protobuf import varint
from trueup.connectors.zookeeper.requests import Znodes
from trueup.state.bookkeeper.observations import LedgerRecord, LedgerState
from trueup.state.common.errors import BadBytes

SECRET = b"pass\nw\xff0rd"
PATHS = BookKeeperPaths("/ledgers")
bookies = st.text("abcdefghijXYZ0123456789:.-_", min_size=1, max_size=40).filter(metadata.valid_bookie)
counts = st.integers(0, 2**62)


@st.composite
def ledgers(draw: Any) -> LedgerRecord:
    ensemble = draw(st.integers(1, 6))
    quorum = draw(st.integers(1, ensemble))
    state = draw(st.sampled_from([LedgerState.OPEN, LedgerState.IN_RECOVERY, LedgerState.CLOSED]))
    closed = state is LedgerState.CLOSED
    firsts = sorted(draw(st.sets(counts, min_size=1, max_size=4)))
    members = st.lists(bookies, min_size=ensemble, max_size=ensemble)
    return {
        "ledger": draw(st.integers(0, 2**62)),
        "mzxid": draw(counts),
        "version": draw(st.integers(0, 2**31 - 1)),
        "ctime_ms": draw(counts),
        "seen_ms": 7,
        "state": int(state),
        "ensemble": ensemble,
        "quorum": quorum,
        "ack_quorum": draw(st.integers(1, quorum)),
        "last_entry": draw(st.integers(-1, 2**62)) if closed else -1,
        "length": draw(counts) if closed else 0,
        "fragments": [{"first_entry": first, "bookies": draw(members)} for first in firsts],
        "custom": draw(st.dictionaries(st.text(max_size=8), st.binary(max_size=200), max_size=4)),
        "error": "",
    }


def where(record: LedgerRecord) -> metadata.ZnodeSource:
    ledger = record["ledger"]
    return metadata.ZnodeSource(ledger, PATHS.ledger(ledger), record["mzxid"], record["version"], 55, record["seen_ms"])


def answer(stored: list[tuple[LedgerRecord, bytes]]) -> Znodes:
    """ZooKeeper's response to a multi read of these znodes."""
    raw, at, size = b"", [], []
    for record, data in stored:
        at.append(len(raw))
        size.append(len(data))
        stat = struct.pack("!qqqqiiiqiiq", 1, record["mzxid"], 55, 0, record["version"], 0, 0, 0, len(data), 0, 1)
        raw += data + stat
    return Znodes(raw, np.array(at, np.int64), np.array(size, np.int64), 99)


def alone(record: LedgerRecord, data: bytes) -> LedgerRecord:
    try:
        return metadata.decode(data, where(record))
    except BadBytes as error:
        return metadata.unreadable(where(record), error)


def together(stored: list[tuple[LedgerRecord, bytes]]) -> bulk.LedgerBatch:
    ids = np.array([record["ledger"] for record, _ in stored], np.int64)
    return bulk.decode(ids, [answer(stored)], PATHS.ledger, 7)


@given(ledgers(), st.sampled_from([2, 3]))
def test_versions_2_and_3_come_back_as_they_were_written(record: LedgerRecord, version: int) -> None:
    assert metadata.decode(metadata.encode(record, version, SECRET), where(record)) == record


@given(ledgers())
def test_version_1_comes_back_without_what_it_cannot_hold(record: LedgerRecord) -> None:
    kept = {**record, "ack_quorum": record["quorum"], "ctime_ms": -1, "custom": {}}
    assert metadata.decode(metadata.encode(record, 1), where(record)) == kept


@given(ledgers(), st.sampled_from([2, 3]))
def test_without_a_stored_creation_time_that_of_the_znode_counts(record: LedgerRecord, version: int) -> None:
    data = metadata.encode({**record, "ctime_ms": -1}, version, None)
    assert metadata.decode(data, where(record))["ctime_ms"] == 55


@given(st.lists(st.tuples(ledgers(), st.sampled_from([1, 2, 3, 3, 3])), max_size=12))
def test_many_at_once_are_the_same_as_one_by_one(drawn: list[tuple[LedgerRecord, int]]) -> None:
    stored = [(record, metadata.encode(record, version, SECRET)) for record, version in drawn]
    assert list(together(stored).records()) == [alone(*pair) for pair in stored]


@given(st.lists(st.tuples(ledgers(), st.sampled_from([2, 3, 3])), max_size=8))
def test_columns_and_records_agree(drawn: list[tuple[LedgerRecord, int]]) -> None:
    batch = together([(record, metadata.encode(record, version)) for record, version in drawn])
    rows = batch.ledgers
    reported = [
        (int(rows.ledger[at]), int(rows.state[at]), int(rows.quorum[at]), rows.ensembles(at), int(rows.entries[at]))
        for at in range(len(rows))
    ]
    assert reported == [
        (r["ledger"], r["state"], r["quorum"], [f["bookies"] for f in r["fragments"]], metadata.entries(r))
        for r in batch.records()
    ]


@st.composite
def damaged(draw: Any) -> tuple[LedgerRecord, bytes]:
    record = draw(ledgers())
    data = bytearray(metadata.encode(record, draw(st.sampled_from([1, 2, 3, 3, 3])), b"secret"))
    for _ in range(draw(st.integers(0, 3))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return record, bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


@given(st.lists(damaged(), min_size=1, max_size=6))
def test_damage_is_never_anything_but_bad_bytes_and_is_found_in_bulk_too(stored: list[Any]) -> None:
    assert list(together(stored).records()) == [alone(*pair) for pair in stored]


@given(st.lists(damaged(), min_size=1, max_size=6))
def test_no_name_is_kept_that_no_ledger_has(stored: list[Any]) -> None:
    batch = together(stored)
    had = {bookie for record in batch.records() for f in record["fragments"] for bookie in f["bookies"]}
    assert set(batch.ledgers.names) == had


@given(damaged())
def test_damage_is_never_read_otherwise_than_protobuf_reads_it(pair: tuple[LedgerRecord, bytes]) -> None:
    record, data = pair
    read = alone(record, data)
    head = metadata.KEY + b"3\n"
    if read["state"] == LedgerState.UNREADABLE or not data.startswith(head):
        return
    message = LedgerMetadata()
    size, start = varint(data, len(head))
    try:
        message.ParseFromString(data[start : start + size])
    except DecodeError:
        pytest.fail("protobuf refuses what was read")
    end = (message.lastEntryId, message.length) if message.state == LedgerState.CLOSED else (-1, 0)
    assert (read["state"], read["quorum"], read["last_entry"], read["length"]) == (
        message.state,
        message.quorumSize,
        *end,
    )


@given(ledgers(), st.sampled_from([2, 3]))
def test_no_record_holds_the_password(record: LedgerRecord, version: int) -> None:
    data = metadata.encode(record, version, b"~secret~")
    assert b"~secret~" in data
    assert "~secret~" not in repr([alone(record, data), *together([(record, data)]).records()])


@given(ledgers(), st.integers(0, 400))
def test_no_error_quotes_the_password(record: LedgerRecord, cut: int) -> None:
    data = metadata.encode(record, 2, b"~secret~")
    assert "~secret~" not in alone(record, data[: data.index(b"~secret~") + 8 + cut])["error"]


LINES = st.lists(
    st.lists(
        st.one_of(
            st.sampled_from([b"CLOSED", b"a:1", b"", b"9" * 4_301, b"-" + b"9" * 4_301, b"0" * 5_000 + b"1"]),
            st.integers(-(2**70), 2**70).map(lambda n: b"%d" % n),
            st.binary(max_size=6),
        ),
        min_size=1,
        max_size=4,
    ),
    max_size=8,
)


@given(LINES)
def test_whatever_the_lines_of_version_1_hold_a_record_comes_of_it(lines: list[list[bytes]]) -> None:
    body = b"\n".join(b"\t".join(line) for line in lines)
    place = metadata.ZnodeSource(1, "/ledgers/1", 2, 3, 4, 5)
    record = queries.decoded(metadata.KEY + b"1\n" + body, place)
    numbers = [record["length"], record["last_entry"], *(f["first_entry"] for f in record["fragments"])]
    assert (all(-(2**63) <= number < 2**63 for number in numbers), len(record["error"]) < 300) == (True, True)


@pytest.mark.parametrize("seed", [1, 2])
def test_numbers_at_the_ends_of_their_range_are_read_alike_by_record_and_by_column(seed: int) -> None:
    assert list(metadata_pairs.differences(4_000, seed)) == []
