"""Batches of a partition between its leader and the pump."""

from collections.abc import Sequence

import pytest

from tests.unit.kafka.test_message_sets import messages
from tests.unit.kafka.test_record_batch import CODECS, RECORDS, built, compressed, contents
from trueup.connectors.contract import LogId
from trueup.connectors.kafka.client.fetch_produce import Fetched
from trueup.connectors.kafka.protocol.record_batch import CONTROL, TRANSACTIONAL, BatchHeader, assemble, header_of
from trueup.connectors.kafka.replication.records import pending as module
from trueup.connectors.kafka.replication.records.pending import Damaged, PendingRecords
from trueup.connectors.replication.ports import Read
from trueup.state.common.errors import BadBytes, Stop

LOG = LogId("orders", 0)
MARKER = b"\x16\0\0\0\x08\0\0\0\0\0\0\0"
"""A control record: an abort."""


def unlinked(_producer: int) -> bytes:
    """The path of batches that no link wrote."""
    return b""


def batch(
    offset: int, values: Sequence[bytes], attributes: int = 0, producer: int = -1, last: int = -1, epoch: int = 0
) -> bytes:
    made = memoryview(built([(None, value, []) for value in values]))
    last_delta = last if last >= 0 else len(values) - 1
    header = header_of(made)._replace(offset=offset, attributes=attributes, producer_id=producer, last_delta=last_delta)
    return bytes(assemble(header._replace(leader_epoch=epoch), bytes(made[61:])))


def control(offset: int, producer: int) -> bytes:
    header = BatchHeader(offset, 0, 0, 2, 0, TRANSACTIONAL | CONTROL, 0, 1, 1, producer, 0, -1, 1)
    return bytes(assemble(header, MARKER))


def answer(*batches: bytes, end: int = 1_000, aborted: Sequence[tuple[int, int]] = ()) -> Fetched:
    return Fetched(0, end, 0, aborted, memoryview(bytearray(b"".join(batches))))


def values(read: Read) -> list[bytes | None]:
    return [*read.records.columns().values]


@pytest.mark.parametrize("codec", CODECS)
def test_records_are_those_that_kafka_python_finds(codec: int) -> None:
    pending = PendingRecords(LOG, 0, unlinked)
    pending.take(answer(bytes(compressed(codec))), 0)
    read = pending.given(100)
    found = zip(*read.records.columns(), strict=True)
    wanted = contents(memoryview(built(RECORDS)))
    assert [(offset, stamp, key, value, [*headers]) for offset, key, value, stamp, headers in found] == wanted
    assert read.next == len(RECORDS)


def test_many_records_are_given_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOGETHER", 1)
    pending = PendingRecords(LOG, 0, unlinked)
    pending.take(answer(batch(0, [b"a", b"b", b"c"]), batch(3, [b"d"]), end=4), 0)
    reads = [pending.given(2) for _ in range(3)]
    assert [(values(read), read.next, read.idle) for read in reads] == [
        ([b"a", b"b"], 2, False),
        ([b"c"], 3, False),
        ([b"d"], 4, True),
    ]
    assert pending.empty
    assert not pending.ready


def test_records_before_the_wanted_offset_are_not_given() -> None:
    pending = PendingRecords(LOG, 1, unlinked)
    pending.take(answer(batch(0, [b"a", b"b"])), 1)
    assert values(pending.given(9)) == [b"b"]


def test_a_response_to_an_earlier_request_is_ignored() -> None:
    pending = PendingRecords(LOG, 5, unlinked)
    pending.take(answer(batch(0, [b"a", b"b"])), 0)
    assert pending.empty
    assert pending.at == 5


def test_what_compaction_removed_at_the_end_of_a_batch_is_passed() -> None:
    pending = PendingRecords(LOG, 0, unlinked)
    pending.take(answer(batch(0, [b"a"], last=6)), 0)
    assert pending.given(9).next == 7


def test_records_of_an_aborted_transaction_are_passed() -> None:
    pending = PendingRecords(LOG, 0, unlinked)
    pending.take(
        answer(
            batch(0, [b"lost"], TRANSACTIONAL, producer=7),
            batch(1, [b"kept"], TRANSACTIONAL, producer=8),
            control(2, 7),
            batch(3, [b"later"], TRANSACTIONAL, producer=7),
            control(4, 8),
            aborted=[(7, 0)],
        ),
        0,
    )
    read = pending.given(9)
    assert values(read) == [b"kept", b"later"]
    assert read.next == 5


def test_markers_alone_move_the_position() -> None:
    pending = PendingRecords(LOG, 0, unlinked)
    pending.take(answer(control(0, 7), end=1), 0)
    assert pending.ready
    read = pending.given(9)
    assert (values(read), read.next, read.idle) == ([], 1, True)


def test_the_end_of_the_log_is_told_once() -> None:
    pending = PendingRecords(LOG, 4, unlinked)
    pending.take(answer(end=4), 4)
    assert pending.ready
    assert pending.given(9).idle
    pending.take(answer(end=4), 4)
    assert not pending.ready


def test_a_batch_with_a_wrong_checksum_is_fetched_again_after_those_before_it() -> None:
    bad = bytearray(batch(1, [b"b"]))
    bad[-1] ^= 1
    pending = PendingRecords(LOG, 0, unlinked)
    pending.take(answer(batch(0, [b"a"]), bytes(bad)), 0)
    assert values(pending.given(9)) == [b"a"]
    with pytest.raises(Damaged):
        pending.take(answer(bytes(bad)), 1)


def test_records_before_a_batch_that_cannot_be_opened_are_given() -> None:
    bad = bytes(assemble(BatchHeader(1, 0, 0, 2, 0, 4, 0, 1, 1, -1, -1, -1, 1), b"not zstd"))
    pending = PendingRecords(LOG, 0, unlinked)
    pending.take(answer(batch(0, [b"a"]), bad), 0)
    assert values(pending.given(9)) == [b"a"]
    with pytest.raises(BadBytes):
        pending.given(9)


def test_an_older_format_is_read_like_a_batch() -> None:
    pending = PendingRecords(LOG, 0, unlinked)
    pending.take(answer(batch(0, [b"a"]), messages(1, [(1, 70, b"k", b"b")]), batch(2, [b"c"]), end=3), 0)
    read = pending.given(9)
    assert (values(read), [*read.records.columns().stamps][1], read.next, read.idle) == (
        [b"a", b"b", b"c"],
        70,
        3,
        True,
    )


def test_records_with_foreign_tags_are_counted_once() -> None:
    pending = PendingRecords(LOG, 0, unlinked)
    headers = [("trueup-source", b"west"), ("trueup-offset", bytes(16))]
    pending.take(answer(bytes(built([(None, b"a", headers), (None, b"b", [])]))), 0)
    reads = [pending.given(1), pending.given(1)]
    assert [read.foreign_tags for read in reads] == [1, 0]
    assert [*reads[0].records.columns().headers] == [[]]


def test_a_record_with_an_illegal_name_is_refused_and_those_behind_it_are_fetched_again() -> None:
    records = (b"\0\0\0\1\1\0", b"\0\0\2\1\1\4\2\xff\1\2a\2b", b"\0\0\4\1\1\0")
    body = b"".join(bytes([2 * len(record)]) + record for record in records)
    whole = bytes(assemble(BatchHeader(0, 0, 0, 2, 0, 0, 2, 1, 1, -1, -1, -1, 3), body))
    pending = PendingRecords(LOG, 0, unlinked)
    pending.take(answer(whole), 0)
    read = pending.given(9)
    assert [*read.records.offsets] == [0, 1]
    assert "not text" in read.refused
    assert [*read.records.columns().headers[1]] == [("\\xff", None), ("a", b"b")]
    assert read.next == pending.at == 2
    pending.take(answer(whole), 2)
    assert [*pending.given(9).records.offsets] == [2]


def test_what_is_given_has_the_leader_epoch_of_its_last_record() -> None:
    pending = PendingRecords(LOG, 0, unlinked, 3)
    pending.take(answer(batch(0, [b"a", b"b"], epoch=3), batch(2, [b"c"], epoch=5), end=3), 0)
    assert (pending.epoch, [(pending.given(most).place) for most in (1, 1, 1)]) == (5, [3, 3, 5])


def test_the_leader_epoch_of_a_marker_is_that_of_the_records_before_the_next_one() -> None:
    pending = PendingRecords(LOG, 0, unlinked, 3)
    pending.take(answer(control(0, 7), end=1), 0)
    read = pending.given(9)
    assert (read.next, read.place) == (1, 0)


def test_other_records_before_the_next_one_stop_the_partition() -> None:
    pending = PendingRecords(LOG, 20, unlinked, 3)
    with pytest.raises(Stop, match="others from offset 15 on"):
        pending.take(Fetched(0, 90, 0, (), memoryview(b""), 15), 20)
