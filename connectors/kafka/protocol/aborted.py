"""Detects aborted transactional batches in a fetch (read_committed, KIP-98), and control batches."""

import struct
from collections.abc import Sequence

from trueup.connectors.kafka.protocol.record_batch import HEADER_BYTES, TRANSACTIONAL, BatchHeader
from trueup.state.common.errors import BadBytes

_ABORT = 0
_KEY = struct.Struct(">hh")


class Aborted:
    """Follows the batches of one fetch response in order; each entry of its aborted list applies once, because the
    producer may commit its next transaction."""

    def __init__(self, entries: Sequence[tuple[int, int]]) -> None:
        self._waiting = sorted(entries, key=lambda entry: -entry[1])
        self._aborting: set[int] = set()

    def holds(self, header: BatchHeader) -> bool:
        """Whether this batch belongs to an aborted transaction."""
        while self._waiting and self._waiting[-1][1] < header.following:
            self._aborting.add(self._waiting.pop()[0])
        return bool(header.attributes & TRANSACTIONAL) and header.producer_id in self._aborting

    def end(self, header: BatchHeader, batch: memoryview) -> None:
        """Process a control batch: an abort marker ends its producer's transaction. Raises `BadBytes`."""
        self.holds(header)
        try:
            aborts = header.records and _kind(batch) == _ABORT
        except (IndexError, struct.error) as error:
            where, todo = f"the control batch at offset {header.offset}", "read it with another client"
            raise BadBytes(where, len(batch), "a control record", "its end", todo) from error
        if aborts:
            self._aborting.discard(header.producer_id)


def _kind(batch: memoryview) -> int:
    """The type of a control record: its key is version and type, two int16 (EndTransactionMarker.java). Before the key
    of a single small record, all numbers except the record's size are varints of one byte."""
    at = HEADER_BYTES
    while batch[at] & 128:
        at += 1
    at += 2  # size, attributes
    for _ in ("time", "offset", "length of the key"):
        while batch[at] & 128:
            at += 1
        at += 1
    kind: int = _KEY.unpack_from(batch, at)[1]
    return kind
