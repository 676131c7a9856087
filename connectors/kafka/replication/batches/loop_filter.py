"""The loop filter for batches: the producer id under which a batch is written at the target, or that it is dropped.

The path of a batch is in its producer id (state/replication/provenance.py), also if its records were copied one by one.
Headers of records are not read: applications copy them.
"""

from trueup.connectors.contract import Assignment, Lease
from trueup.connectors.kafka.protocol.record_batch import BatchHeader
from trueup.state.replication.provenance import onward, producer_id, refilled, tag_of

_REMEMBERED = 10_000


class LoopFilter:
    """The loop filter of one source partition."""

    def __init__(self, assignment: Assignment, lease: Lease) -> None:
        self._refill = assignment.refill
        self._writer_id, self._forward = lease.writer_id, lease.forward
        self._source, self._target = lease.source.bit, lease.target.bit
        self._known: dict[tuple[int, bool | None], int | None] = {}

    def of(self, header: BatchHeader) -> int | None:
        """The producer id at the target; None: the target or the cluster of origin has it."""
        held = self._held(header.offset)
        key = header.producer_id, held
        if key not in self._known:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            tag = tag_of(header.producer_id)
            self._known[key] = self._written(None if tag is None else tag.path, held)
        return self._known[key]

    def _held(self, offset: int) -> bool | None:
        """Whether the target had the records at this offset before it lost them; None: they are not refilled."""
        refill = self._refill
        return None if refill is None or offset >= refill.until else offset < refill.held

    def _written(self, path: int | None, held: bool | None) -> int | None:
        ends = self._source, self._target, self._forward
        passed = onward(path, *ends) if held is None else refilled(path, *ends, held)
        return None if passed is None else producer_id(passed, self._writer_id)
