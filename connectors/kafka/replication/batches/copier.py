"""The copier of the batches path: whole record batches from leader to leader, without decompression, exactly once.

One thread and one selector: fetch responses fill the partitions' queues, idle writers drain them, acknowledgements
advance the positions. An error of a partition affects only that partition: it is read again at the target, or stops.
"""

import selectors
import time
from collections.abc import Callable, Iterator

from trueup.connectors.contract import Lease, LogId, Progress
from trueup.connectors.kafka.client.cluster import KafkaClient
from trueup.connectors.kafka.client.fetch_produce import (
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_ID,
    Fetched,
    Produced,
    UnknownTopic,
    problem,
)
from trueup.connectors.kafka.client.topic_ids import text_of
from trueup.connectors.kafka.replication.batches.ends import TargetEnds
from trueup.connectors.kafka.replication.batches.fetcher import Fetcher
from trueup.connectors.kafka.replication.batches.partition import Differs, PartitionStatus, SentBatch, Track
from trueup.connectors.kafka.replication.batches.resume import resume_points
from trueup.connectors.kafka.replication.batches.sender import Sender
from trueup.connectors.replication.rate_limit import Rate
from trueup.state.common.backoff import backoff
from trueup.state.common.counts import many
from trueup.state.common.errors import Retry, Stop, TrueupError
from trueup.state.replication.anomalies import single_records

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 1.0
MISSING_S = 5.0
"""The time for which brokers that have just started, or since its creation, may not know a topic."""
_POLL_S = 0.5
_ANSWERS_S = 15.0
_SILENT = Retry("a response from the broker", f"none for {_ANSWERS_S:g} s", "check the broker and the network")


class PartitionSide:
    """The state of one end of a partition. ``node``: its leader, None until it is read again."""

    __slots__ = ("error", "failures", "missing_s", "node", "not_before")

    def __init__(self) -> None:
        self.node: int | None = None
        self.error: TrueupError | None = None
        self.failures, self.not_before, self.missing_s = 0, 0.0, 0.0

    def fail(self, error: TrueupError, now: float) -> None:
        """Schedule a new read, with back-off. Raises `Stop` for a partition that remains unknown."""
        if isinstance(error, UnknownTopic):
            self.missing_s = self.missing_s or now
            if now - self.missing_s > MISSING_S:
                raise Stop(error.expected, error.found, error.todo)
        pause = backoff(_FIRST_PAUSE_S, self.failures, _LONGEST_PAUSE_S)
        self.node, self.error, self.failures, self.not_before = None, error, self.failures + 1, now + pause

    def found(self, node: int) -> None:
        """Set the leader."""
        self.node, self.error = node, None

    def well(self) -> None:
        """Reset the back-off after success."""
        self.failures, self.missing_s = 0, 0.0


class BatchLine:
    """A partition with both of its ends."""

    __slots__ = ("source", "stopped", "target", "track")

    def __init__(self, track: Track) -> None:
        self.track, self.source, self.target = track, PartitionSide(), PartitionSide()
        self.stopped: TrueupError | None = None

    @property
    def unsure(self) -> bool:
        """Whether its position must be read at the target, and can be: no response is outstanding."""
        return self.target.node is None and not self.track.flying


class BatchCopier:
    """An open lease of the batches path. See `connectors.contract.Copier`."""

    def __init__(self, lease: Lease) -> None:
        _check(lease)
        self._lease = lease
        self._source, self._target = KafkaClient(lease.source), KafkaClient(lease.target)
        self._selector = selectors.DefaultSelector()
        self._fetcher = Fetcher(self._source, self._selector, lease.limits.fetch_bytes, self._source_failed)
        self._sender = Sender(self._target, self._selector, lease.limits.in_flight, self._answered, self._target_failed)
        self._ends = TargetEnds(self._target, lease.writer_id)
        self._lines = {a.source: BatchLine(Track(a, lease)) for a in lease.assignments}
        self._rate = Rate(lease.limits, time.monotonic())
        try:
            self._open()
        except TrueupError:
            self.close()
            raise

    def copy(self, until_s: float, keep_going: Callable[[], bool] = lambda: True) -> None:
        """See the contract."""
        while (now := time.monotonic()) < until_s and keep_going():
            self._mend(now)
            self._send(now)
            self._fetcher.ask(
                (line.source.node, line.track) for line in self._running() if line.source.node is not None
            )
            self._receive(min(until_s, now + _POLL_S, self._wake_s(now)) - now)
        self._drain()

    def progress(self) -> list[Progress]:
        """See the contract."""
        now_ms = int(time.time() * 1000)
        reports = []
        for line in self._lines.values():
            error = line.stopped or line.target.error or line.source.error
            status = PartitionStatus(str(error) if error else "", line.stopped is not None)
            reports.append(line.track.progress(now_ms, status))
        return reports

    def close(self) -> None:
        """See the contract."""
        self._fetcher.close()
        self._sender.close()
        self._source.close()
        self._target.close()
        self._selector.close()

    def _running(self) -> Iterator[BatchLine]:
        return (line for line in self._lines.values() if line.stopped is None)

    def _open(self) -> None:
        lines = list(self._lines.values())
        self._source.refresh(line.track.source.topic for line in lines)
        self._target.refresh(line.track.target.topic for line in lines)
        if self._source.id == self._target.id:
            raise Stop(f"link {self._lease.link} to join two clusters", f"{self._source.id} twice", "correct the link")
        self._led(lines)
        self._resume(lines)

    def _wake_s(self, now: float) -> float:
        """The time of the next action that no broker triggers."""
        due = [line.source.not_before for line in self._running() if line.source.node is None]
        due += [line.target.not_before for line in self._running() if line.unsure]
        if any(line.track.queue for line in self._running()) and (pause := self._rate.wait_s(now)):
            due.append(now + pause)
        return max(now, min(due, default=now + _POLL_S))

    def _send(self, now: float) -> None:
        while not self._rate.wait_s(now):
            of_node: dict[int, list[Track]] = {}
            for line in self._lines.values():
                node = line.target.node
                if node is not None and line.track.ready and self._sender.room(node):
                    of_node.setdefault(node, []).append(line.track)
            if not of_node:
                return
            for node, tracks in of_node.items():
                self._rate.take(*self._sender.send(node, tracks))

    def _receive(self, timeout_s: float) -> None:
        for key, _ in self._selector.select(max(0.0, timeout_s)):
            owner, node = key.data
            if owner is self._sender:
                self._sender.receive(node)
            else:
                for track, asked, answer in self._fetcher.receive(node):
                    self._fetched(self._lines[track.source], asked, answer)

    def _fetched(self, line: BatchLine, asked: int, answer: Fetched) -> None:
        if line.stopped is not None:
            return
        try:
            if answer.error == OFFSET_OUT_OF_RANGE and asked == line.track.reached:
                self._find_start(line)
            elif answer.error:
                raise problem(answer.error, f"read {line.track.source} of {self._lease.source.name}")
            else:
                line.track.accept(answer, asked)
                line.source.well()
        except Differs as error:
            if line.target.node is not None:
                self._failed(line, line.target, error)
        except TrueupError as error:
            self._failed(line, line.source, error)

    def _find_start(self, line: BatchLine) -> None:
        """Find the start after retention passed the position. Raises `Stop` if the source has less than was copied."""
        where = line.track.source
        bounds = self._source.bounds([where])[where]
        if isinstance(bounds, TrueupError):
            raise bounds
        start, end = bounds
        line.track.epoch = -1  # a leader without this epoch gives the same error
        if line.track.reached < start:
            line.track.skip_to(start)
        elif line.track.reached > end:
            raise Stop(
                f"{where} of {self._lease.source.name} to reach offset {line.track.reached}",
                f"its end is {end}",
                "it lost records or was recreated: set the position of this partition",
            )

    def _answered(self, track: Track, entry: SentBatch, answer: Produced) -> None:
        line = self._lines[track.source]
        if not answer.error:
            track.acknowledge(entry, answer.offset)
            line.target.well()
        elif answer.error == UNKNOWN_ID and answer.offset >= 0:
            self._failed(
                line,
                line.target,
                Stop(
                    f"topic {track.target.topic} of {self._lease.target.name} with id {text_of(track.target_id)}",
                    f"it was recreated during a write: {many(entry.records, 'record')} of this link in partition "
                    f"{track.target.number} of the new topic from offset {answer.offset} on",
                    "reset the link's partitions of this topic, or leave it out of the link; these records stay there",
                ),
            )
        elif line.target.node is not None and line.stopped is None:
            doing = f"write to {track.target} of {self._lease.target.name}"
            self._failed(line, line.target, problem(answer.error, doing))

    def _source_failed(self, track: Track, error: TrueupError) -> None:
        line = self._lines[track.source]
        self._failed(line, line.source, error)

    def _target_failed(self, track: Track, error: TrueupError) -> None:
        line = self._lines[track.source]
        if line.target.node is not None:
            self._failed(line, line.target, error)

    def _failed(self, line: BatchLine, side: PartitionSide, error: TrueupError) -> None:
        try:
            if not isinstance(error, Retry):
                raise error
            side.fail(error, time.monotonic())
        except TrueupError as final:
            line.stopped = line.stopped or final
            if side is line.target:
                line.track.halt()

    def _mend(self, now: float) -> None:
        self._sender.give_up(_SILENT, now - _ANSWERS_S)
        self._fetcher.give_up(_SILENT, now - _ANSWERS_S)
        lost = [line for line in self._running() if line.source.node is None and line.source.not_before <= now]
        if lost and self._refreshed(self._source, [(line, line.source, line.track.source) for line in lost]):
            self._led(lost)
        unsure = [line for line in self._running() if line.unsure and line.target.not_before <= now]
        if unsure and self._refreshed(self._target, [(line, line.target, line.track.target) for line in unsure]):
            self._resume(unsure)

    def _refreshed(self, cluster: KafkaClient, ends: list[tuple[BatchLine, PartitionSide, LogId]]) -> bool:
        """Read the leaders. Raises `Stop` if the cluster refuses the client."""
        try:
            cluster.refresh(partition.topic for _, _, partition in ends)
        except Retry as error:
            for line, side, _ in ends:
                self._failed(line, side, error)
            return False
        return True

    def _led(self, lines: list[BatchLine]) -> None:
        for line in lines:
            track = line.track
            try:
                leader = self._source.leader(track.source)
                track.source_id = _identified(self._source, track.source.topic, track.source_id)
                self._source.asking(leader)  # connect now, so that a short lease does not wait for it
                line.source.found(leader)
            except TrueupError as error:
                self._failed(line, line.source, error)

    def _resume(self, lines: list[BatchLine]) -> None:
        """Read the position of each partition at the target and start from there."""
        lines = [line for line in lines if self._meant(line)]
        places = {line.track.target: line.track.place for line in lines}
        by_record = {line.track.target for line in lines if line.track.by_record}
        points = resume_points(self._target, places, self._lease.writer_id, by_record)
        for line in lines:
            resume_point = points[line.track.target]
            if isinstance(resume_point, TrueupError):
                self._failed(line, line.target, resume_point)
            else:
                line.track.rewind(resume_point)
                line.target.found(self._target.leader(line.track.target))

    def _meant(self, line: BatchLine) -> bool:
        """Whether the target's topic is the intended one."""
        track = line.track
        try:
            self._target.leader(track.target)
            track.target_id = _identified(self._target, track.target.topic, track.target_id)
        except TrueupError as error:
            self._failed(line, line.target, error)
            return False
        return True

    def _drain(self) -> None:
        """Wait for all outstanding responses; the positions then account for everything at the target, unless
        another copier is active."""
        end = time.monotonic() + _ANSWERS_S
        while self._sender.flying and (now := time.monotonic()) < end:
            self._receive(end - now)
        self._sender.give_up(_SILENT, time.monotonic())
        self._sender.rest()
        idle = [line.track for line in self._running() if line.target.node is not None and line.track.idle]
        for source, error in self._ends.observe(idle).items():
            self._failed(self._lines[source], self._lines[source].target, error)


def _identified(cluster: KafkaClient, topic: str, meant: bytes) -> bytes:
    """The id of a topic that exists and is the intended one. Raises `UnknownTopic`, and `Stop` if it has none."""
    topic_id = cluster.identify(topic, meant)
    if not topic_id:
        raise Stop(
            f"an id of topic {topic} of {cluster.endpoint.name}, which distinguishes it from one that is recreated",
            "none",
            "set inter.broker.protocol.version to 2.8 or later there, or set copy: records",
        )
    return topic_id


def _check(lease: Lease) -> None:
    if single_records(bool(lease.transform), lease.failures):
        raise Stop(
            f"link {lease.link} without a transform and with failures: stop",
            f"transform {lease.transform!r} and failures {lease.failures!r}",
            "set copy: records",
        )
    targets = [assignment.target for assignment in lease.assignments]
    if len(set(targets)) < len(targets):
        raise Stop(
            f"separate target partitions for the partitions of link {lease.link}",
            "several with the same target",
            "set copy: records",
        )
