"""How far a target partition contains nothing of this copy that its position does not count.

The list of producers of the leader proves it up to the end while it contains all producers of the position. A leader
forgets producers (see `resume`), of an idle link after producer.id.expiration.ms. Then the records are read, a limited
number after each lease: they are those of other writers.
"""

import time
from collections.abc import Iterable

from trueup.connectors.contract import LogId
from trueup.connectors.kafka.client.cluster import KafkaClient
from trueup.connectors.kafka.client.fetch_produce import OFFSET_OUT_OF_RANGE, Fetched, problem
from trueup.connectors.kafka.replication.batches.partition import Track
from trueup.connectors.kafka.replication.batches.resume import facts
from trueup.state.common.errors import TrueupError

_READ_S, _EACH_BYTES, _READ_BYTES = 0.2, 1 << 20, 8 << 20


class TargetEnds:
    """Observes the ends of the target partitions of one lease, while nothing is in flight."""

    def __init__(self, target: KafkaClient, writer_id: int) -> None:
        self._target, self._writer_id = target, writer_id
        self._reads: dict[LogId, int] = {}

    def observe(self, idle: Iterable[Track]) -> dict[LogId, TrueupError]:
        """Report the ends of target partitions to their tracks, in which nothing is in flight. Returns errors by source
        partition: its state at the target must be read again."""
        of = {track.target: track for track in idle}
        there = facts(self._target, of, self._writer_id, {})
        unread = {partition: of[partition] for partition, fact in there.items() if of[partition].drained(*fact)}
        return self._read(unread, time.monotonic() + _READ_S) if unread else {}

    def _read(self, unread: dict[LogId, Track], until_s: float) -> dict[LogId, TrueupError]:
        """Read while there is something new, and time. Partitions that were read least often come first: the response
        may have no room for the others."""
        failed: dict[LogId, TrueupError] = {}
        moved = True
        while moved and time.monotonic() < until_s:
            moved = False
            order = sorted(unread, key=lambda partition: self._reads.get(partition, 0))
            for node, places in self._target.by_leader({log: unread[log].seen for log in order}).items():
                try:
                    answers = self._target.fetch(node, places, _EACH_BYTES, _READ_BYTES, 0)
                except TrueupError as error:
                    failed |= {unread.pop(partition).source: error for partition in places}
                    continue
                for partition, answer in answers.items():
                    try:
                        moved |= self._look(unread[partition], answer)
                    except TrueupError as error:
                        failed[unread.pop(partition).source] = error
        return failed

    def _look(self, track: Track, answer: Fetched) -> bool:
        """Report what was read. Returns whether that was something."""
        if answer.error == OFFSET_OUT_OF_RANGE:
            moved = track.look_from(self._target.start(track.target))
        elif answer.error:
            raise problem(answer.error, f"read {track.target} of {self._target.endpoint.name}")
        else:
            moved = track.look(answer.records)
        self._reads[track.target] = self._reads.get(track.target, 0) + moved
        return moved
