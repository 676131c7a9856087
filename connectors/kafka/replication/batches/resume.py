"""The state of a link at the target, read from its leaders: last sequence numbers, and uncounted batches.

The leader remembers the last sequence number of every producer (KIP-664), but not reliably: it forgets a producer whose
newest record is older than producer.id.expiration.ms (ProducerStateManager.isProducerExpired uses the batch's
timestamp), so a producer of old records is forgotten at every check. Therefore records after a position's floor are
always read, unless the target ends there: they show which source batches exist, where, and whether they are equal.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from trueup.connectors.contract import LogId
from trueup.connectors.kafka.client.cluster import KafkaClient
from trueup.connectors.kafka.client.fetch_produce import problem
from trueup.connectors.kafka.protocol.compression import opened
from trueup.connectors.kafka.protocol.record_batch import CODEC, HEADER_BYTES, BatchHeader, digest, walk
from trueup.connectors.kafka.replication.batches.position import BatchPosition, ahead, following
from trueup.connectors.kafka.replication.batches.stored import UncountedRecords
from trueup.state.common.counts import many
from trueup.state.common.errors import Retry, Stop, TrueupError
from trueup.state.replication.provenance import tag_of

_READ_BYTES = 4 << 20
_WAIT_MS, _WAITS = 100, 20
_FIRST_STEP, _STEP_GROWS, _SEARCH_BYTES = 1_000, 8, 8 << 20


class CopiedBatch(NamedTuple):
    """A batch of this copy at the target."""

    offset: int
    sequence: int
    last_sequence: int
    codec: int
    digest: int | None
    """The digest of the batch (`record_batch.digest`). None if the batch was compacted."""
    body: bytes | None
    """The (compressed) records. Only the newest batch of a producer id has them, older batches have None."""

    def same(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether it is the copy of a batch of the source. If the broker recompresses, only the newest is
        compared."""
        if (following(self.last_sequence) - self.sequence - header.records) & 0x7FFFFFFF:
            return False
        codec = header.attributes & CODEC
        if self.digest is None or codec == self.codec:
            return self.digest in (None, digest(batch))
        if self.body is None:
            return True
        there, here = memoryview(self.body), batch[HEADER_BYTES:]
        return opened(self.codec, there, "the target") == opened(codec, here, "the source")


@dataclass(slots=True)
class ResumePoint:
    """The state of a target partition from which its copy resumes."""

    floor: int
    """The end of the target partition. The position has this floor once it counts all uncounted batches."""
    known: frozenset[int]
    """The producer ids of this link whose sequence numbers the leader checks."""
    last: dict[int, int] = field(default_factory=dict)
    """The last sequence number of each producer id for which the target is ahead of the position."""
    own: dict[int, deque[CopiedBatch]] = field(default_factory=dict)
    """The batches at the target that the position does not count, by producer id, in order."""
    counted: int = -1
    """The target offset after the counted batches, which may be far before the floor. -1: unknown."""
    whole: bool = False
    """Whether nothing was removed from the target at or after the floor of the position. ``own`` then contains all
    uncounted batches that were ever written there."""
    records: dict[int, UncountedRecords] = field(default_factory=dict)
    """The records of the uncounted batches by producer id. Empty unless records are compared one by one."""
    cut: bool = False
    """Whether the target deleted a part of its log at or after the floor of the position. The first uncounted batches
    may then be missing."""


def resume_points(
    target: KafkaClient, places: Mapping[LogId, BatchPosition], writer_id: int, by_record: Collection[LogId] = ()
) -> dict[LogId, ResumePoint | TrueupError]:
    """The state of each target partition. The end is read before the producers, so that they include every batch
    before it. If they are ahead of the counts, the batches are read once every in-sync replica has them. ``by_record``:
    the partitions whose records are read."""
    points: dict[LogId, ResumePoint | TrueupError] = {}
    there = facts(target, places, writer_id, points)
    settled = target.settled(p for p, (_, last) in there.items() if not places[p].chosen and places[p].ahead(last))
    for partition, (end, last) in there.items():
        until = settled.get(partition, end)
        try:
            if isinstance(until, TrueupError):
                raise until
            look = _TargetScan(target, partition, places[partition], writer_id, until, partition in by_record)
            points[partition] = look.resume_point(end, last)
        except TrueupError as error:
            points[partition] = error
    return points


def facts(
    target: KafkaClient, partitions: Iterable[LogId], writer_id: int, failed: dict[LogId, ResumePoint | TrueupError]
) -> dict[LogId, tuple[int, dict[int, int]]]:
    """The end and the last sequence numbers of this link, read in this order. Errors are added to ``failed``."""
    ends, producers = target.ends(partitions), target.producers(partitions)
    states = {}
    for partition in partitions:
        end, answer = ends[partition], producers[partition]
        if isinstance(end, TrueupError):
            failed[partition] = end
        elif isinstance(answer, TrueupError):
            failed[partition] = answer
        else:
            states[partition] = end, {producer: last for producer, last in answer.items() if ours(producer, writer_id)}
    return states


def ours(producer_id: int, writer_id: int) -> bool:
    """Whether this link wrote the batches of a producer."""
    tag = tag_of(producer_id)
    return tag is not None and tag.whole and tag.writer_id == writer_id


class _TargetScan:
    """One partition of the target, read for one position. ``until``: the target offset at which the read ends."""

    def __init__(
        self, target: KafkaClient, partition: LogId, place: BatchPosition, writer_id: int, until: int, by_record: bool
    ) -> None:
        self._target, self._partition, self._place, self._until = target, partition, place, until
        self._writer_id = writer_id
        self._first = self._bytes = 0
        self._counted = place.floor
        self._whole, self._cut = place.floor >= 0, False
        self._by_record, self._records = by_record, dict[int, UncountedRecords]()

    def resume_point(self, end: int, last: dict[int, int]) -> ResumePoint:
        place = self._place
        if place.chosen:
            place.counts = {producer: following(sequence) for producer, sequence in last.items()}
            return ResumePoint(end, frozenset(last))
        self._check(end, last)
        if end in (0, place.floor) and place.agrees(last):
            return ResumePoint(end, frozenset(last))
        self._first = self._target.start(self._partition)
        own = self._search(last) if place.floor < 0 else self._after(place.floor, last)
        newest = {producer: batches[-1].last_sequence for producer, batches in own.items() if batches}
        beyond = place.ahead({**newest, **last})
        records = (
            {n: self._records.get(n, UncountedRecords(place.counts.get(n, 0))) for n in beyond}
            if self._by_record
            else {}
        )
        return ResumePoint(end, frozenset(last), beyond, own, self._counted, self._whole, records, self._cut)

    def _check(self, end: int, last: Mapping[int, int]) -> None:
        where = f"{self._partition} of {self._target.endpoint.name}"
        todo = "it lost records or was recreated: set the position of this partition"
        if self._place.floor > end:
            raise Stop(f"{where} to reach offset {self._place.floor}", f"its end is {end}", todo)
        for producer, sequence in last.items():
            count = self._place.counts.get(producer, 0)
            if ahead(following(sequence), count) < 0:
                raise Stop(
                    f"{where} to have {many(count, 'record')} of producer {producer:#x}", f"{following(sequence)}", todo
                )

    def _after(self, start: int, last: Mapping[int, int]) -> dict[int, deque[CopiedBatch]]:
        """Batches of this copy from an offset on, until the end and all known sequence numbers were read."""
        own: dict[int, deque[CopiedBatch]] = {}
        missing = self._place.ahead(last)
        if start < self._first:
            self._whole, self._cut = False, True
        self._records.clear()
        for header, batch in self._read(max(start, self._first), missing):
            if ours(header.producer_id, self._writer_id) and header.last_delta >= 0:
                if missing.get(header.producer_id) == header.last_sequence:
                    del missing[header.producer_id]
                if ahead(header.sequence, self._place.counts.get(header.producer_id, 0)) >= 0:
                    _add(own.setdefault(header.producer_id, deque()), header, batch)
                else:
                    self._counted = header.following
                if self._by_record:
                    self._store(header, batch)
        self._whole = self._whole and not missing
        return own

    def _store(self, header: BatchHeader, batch: memoryview) -> None:
        """Keep the records of a batch that are not counted; the position may count only the first of them."""
        count = self._place.counts.get(header.producer_id, 0)
        if ahead(following(header.last_sequence), count) > 0:
            where = f"{self._partition} of {self._target.endpoint.name}"
            self._records.setdefault(header.producer_id, UncountedRecords(count)).add(header, batch, where)

    def _search(self, last: Mapping[int, int]) -> dict[int, deque[CopiedBatch]]:
        """Search backwards from the end for the first batches of this copy, with sequence number 0, if the position is
        unknown. If the leader knows none, only the newest part is read."""
        step = _FIRST_STEP
        while True:
            start = max(self._first, self._until - step)
            own = self._after(start, last)
            begun = own and all(own.get(producer) for producer in last)
            if start == self._first or (begun and all(batches[0].sequence == 0 for batches in own.values())):
                return own
            if not last and not own and self._bytes >= _SEARCH_BYTES:
                return own
            step *= _STEP_GROWS

    def _read(self, start: int, missing: Mapping[int, int]) -> Iterator[tuple[BatchHeader, memoryview]]:
        """The batches from an offset on, at least up to ``until``. Raises `Retry` if the leader returns fewer."""
        at, waits, self._bytes = start, 0, 0
        leader = self._target.leader(self._partition)
        while at < self._until or (missing and waits < _WAITS):
            answer = self._fetch(leader, at)
            begun = at
            for header, batch in walk(answer):
                if header.following > at:
                    self._whole = self._whole and header.offset <= at
                    at = header.following
                    self._bytes += len(batch)
                    yield header, batch
            if begun < at < self._until:
                waits = 0  # each response of a broker that limits its clients may be followed by an empty one
            elif at == begun:
                waits += 1
                if waits >= _WAITS:
                    break
        if at < self._until:
            raise Retry(
                f"the records of {self._partition} of {self._target.endpoint.name} from offset {at} to {self._until}",
                f"none in {_WAITS} responses",
                "check the quotas of its brokers for this client; retrying",
            )

    def _fetch(self, leader: int, at: int) -> memoryview:
        """Records from an offset on. A broker that limits its clients returns none (KIP-219)."""
        where = self._partition
        answer = self._target.fetch(leader, {where: at}, _READ_BYTES, _READ_BYTES, _WAIT_MS).get(where)
        if answer is None:
            return memoryview(b"")
        if answer.error:
            raise problem(answer.error, f"read {where} of {self._target.endpoint.name}")
        return answer.records


def _add(own: deque[CopiedBatch], header: BatchHeader, batch: memoryview) -> None:
    if own:
        own[-1] = own[-1]._replace(body=None)
    value = digest(batch) if header.dense else None
    own.append(
        CopiedBatch(
            header.offset,
            header.sequence,
            header.last_sequence,
            header.attributes & CODEC,
            value,
            bytes(batch[HEADER_BYTES:]),
        )
    )
