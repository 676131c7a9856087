"""The loop filter for batches: the producer id under which a batch is written at the target, or that it is dropped.

The path of a batch is in its producer id, for the records path in a header (state/replication/provenance.py). Only the
first record is checked for that header: Trueup's producers with an id never share batches, and a batch without an id
contains the records of one producer.
"""

from trueup.connectors.contract import Assignment, Lease
from trueup.connectors.kafka.protocol.record_batch import Header
from trueup.connectors.kafka.protocol.reencode import first_header
from trueup.state.replication.provenance import HEADER, onward, producer_id, refilled, tag_of, tokens_of

_NAME = HEADER.encode()
_REMEMBERED = 10_000


class LoopFilter:
    """The loop filter of one source partition."""

    def __init__(self, assignment: Assignment, lease: Lease, where: str) -> None:
        self._refill = assignment.refill
        self._writer_id, self._forward = lease.writer_id, lease.forward
        self._source, self._target = lease.source.bit, lease.target.bit
        self._bits = {**lease.clusters, lease.source.name: self._source, lease.target.name: self._target}
        self._where = where
        self._known: dict[tuple[int, int, bool | None], int | None] = {}

    def of(self, header: Header, batch: memoryview) -> int | None:
        """The producer id at the target; None: the target or the cluster of origin has it. Raises `BadBytes`."""
        held = self._held(header.offset)
        if header.producer_id < 0:
            return self._written(self._recorded_path(header, batch), held)
        key = header.producer_id, header.epoch, held
        if key not in self._known:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            tag = tag_of(header.producer_id)
            self._known[key] = self._written(tag.path if tag else self._recorded_path(header, batch), held)
        return self._known[key]

    def _held(self, offset: int) -> bool | None:
        """Whether the target had the records at this offset before it lost them; None: they are not refilled."""
        refill = self._refill
        return None if refill is None or offset >= refill.until else offset < refill.held

    def _written(self, path: int | None, held: bool | None) -> int | None:
        ends = self._source, self._target, self._forward
        passed = onward(path, *ends) if held is None else refilled(path, *ends, held)
        return None if passed is None else producer_id(passed, self._writer_id)

    def _recorded_path(self, header: Header, batch: memoryview) -> int | None:
        """The path in the header of the records path; clusters that are not configured have no bit."""
        value = first_header(header, batch, _NAME, self._where)
        if value is None:
            return None
        path = 0
        for token in tokens_of(value):
            path |= 1 << self._bits[token] if token in self._bits else 0
        return path
