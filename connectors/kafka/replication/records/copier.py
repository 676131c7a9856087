"""Copies individual records with librdkafka: each record can be tagged, filtered or refused separately.

Keys, values, headers and timestamps are preserved (a timestamp of exactly 0 cannot be sent, see librdkafka's
``rd_kafka_producev``: it becomes the time of copying). Control records and aborted transactions are not copied.
Delivery is exactly once while one worker copies a partition at a time: the target's tail shows how far the
copy progressed (`target_tail`), and records in flight from a killed predecessor get some time to arrive. A record that
arrives even later is written twice and counted in ``repeated`` by the next copier.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby, repeat, starmap

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from trueup.connectors.contract import Lease, LogId, Progress
from trueup.connectors.kafka.client.fetch_produce import Missing
from trueup.connectors.kafka.client.topic_ids import id_of
from trueup.connectors.kafka.replication.records.clients import (
    BATCH_BYTES,
    LINK_WIDE,
    bounds,
    cluster_of,
    consumer,
    dropped,
    producer,
    purged,
    served,
    translated,
)
from trueup.connectors.kafka.replication.records.known_leaders import KnownLeaders
from trueup.connectors.kafka.replication.records.partitions import PartitionTrack
from trueup.connectors.kafka.replication.records.rewrite import Broken, Rewriter
from trueup.connectors.kafka.replication.records.single_send import SingleSender
from trueup.connectors.kafka.replication.records.source_guard import SourceGuard
from trueup.connectors.kafka.replication.records.target_tail import KafkaTails, TargetEnds
from trueup.connectors.kafka.replication.records.topic_identity import Identity
from trueup.connectors.replication.garbage import few_collections
from trueup.connectors.replication.rate_limit import Rate
from trueup.connectors.replication.resume import Resume
from trueup.connectors.replication.track import Lane
from trueup.state.common.errors import Retry, Stop, TrueupError

BATCH, AHEAD = 2_000, 40_000
"""Maximum records of one read, and of records that wait for the target."""
AHEAD_BYTES = 64 << 20
FEW, SENT_S = 100, 0.002
"""Up to this number of waiting records, the client sends them at once, for which it gets this time. More are sent
together."""
IDLE_S, GRACE_S, GUARD_S, ASK_S = 0.05, 5.0, 5.0, 6.0
IDENTIFY_S = 0.1
"""Shorter than a producer's delay before it repeats a write."""
CAREFUL = 1_000
RECOVERIES = 5
"""Maximum failures in one call; then the link is retried later."""
_LOST = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


class Records:
    """The connector."""

    def open(self, lease: Lease) -> "RecordCopier":
        """Connect to both ends and read the position of each partition at the target. Raises `TrueupError`."""
        return RecordCopier(lease)


class RecordCopier:
    """One lease. See `connectors.contract.Copier`."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._rewriter = Rewriter(lease)
        self._failed: list[tuple[PartitionTrack | None, KafkaError]] = []
        self._down: dict[str, KafkaError] = {}
        lanes = {a.target: Lane(a.target) for a in lease.assignments}
        self._tracks = {
            a.source: PartitionTrack(a, lanes[a.target], lease.writer_id, self._failed) for a in lease.assignments
        }
        self._by_place = {source[:2]: track for source, track in self._tracks.items()}
        for lane in lanes.values():
            lane.shared = sum(a.target == lane.target for a in lease.assignments) > 1
        self._many = len({a.source.topic for a in lease.assignments}) > 1
        source, target = cluster_of(lease.source), cluster_of(lease.target)
        self._here = Identity(source, {a.source.topic: id_of(a.source_id) for a in lease.assignments})
        self._there = Identity(target, {a.target.topic: id_of(a.target_id) for a in lease.assignments})
        self._identified = 0.0
        self._single_sender = SingleSender(lease, self._rewriter, self._there)
        self._rate = Rate(lease.limits, time.monotonic())
        self._guard, self._guarded, self._clusters_checked = SourceGuard(lease, source), 0.0, False
        self._batch_bytes, self._refused, self._recovered = BATCH_BYTES, 0, False
        self._tails = KafkaTails(lease.target)
        self._resume = Resume(partial(bounds, lease.source), TargetEnds(lease.target, target), self._tails)
        self._producer: Producer | None = None
        self._assigned = False
        self._known = KnownLeaders()
        self._first: dict[LogId, PartitionTrack] = {}  # the partition whose first record is in flight, by target
        self._consumer: Consumer = consumer(lease.source, lease.limits, self._error_callback("source"))
        try:
            self._begin([*self._tracks.values()], ours=False)
        except TrueupError:
            self.close()
            raise

    def copy(self, until_s: float, keep_going: Callable[[], bool] = lambda: True) -> None:
        """Copy until ``until_s``. See `connectors.contract.Copier.copy`."""
        with few_collections():
            self._copy(until_s, keep_going)

    def _copy(self, until_s: float, keep_going: Callable[[], bool]) -> None:
        recoveries = 0
        unknown = [track for track in self._tracks.values() if not track.known and not track.stopped]
        if unknown or not self._assigned:
            self._begin(unknown, ours=True)
        while (now := time.monotonic()) < until_s and keep_going():
            if self._failed:
                recoveries += 1
                if recoveries > RECOVERIES:
                    raise Retry("a target that accepts records", self._failed[0][1].str(), "check its brokers")
                self._recover()
            elif self._active():
                self._watch(now)
                self._copy_once(now, until_s)
            else:
                time.sleep(min(IDLE_S, until_s - now))
        self._finish(until_s)
        self._check_ends()

    def progress(self) -> list[Progress]:
        """The progress since the last call."""
        for source, track in self._tracks.items():
            track.see(*self._consumer.get_watermark_offsets(TopicPartition(*source[:2]), cached=True))
        now_ms = int(time.time() * 1000)
        return [track.progress(now_ms) for track in self._tracks.values()]

    def close(self) -> None:
        """Close all connections."""
        self._drop_producer()
        self._consumer.close()
        for part in (self._tails, self._single_sender, self._here, self._there):
            part.close()

    def _begin(self, tracks: Sequence[PartitionTrack], ours: bool) -> None:
        """Read the positions of partitions and continue there. ``ours``: this copier wrote to them before."""
        self._assigned = False
        if self._producer is None:
            self._producer = producer(
                self._lease.target, self._lease.limits, self._error_callback("target"), self._batch_bytes
            )
        try:
            if not self._clusters_checked:
                self._check_clusters(self._producer)
            self._resume.run(self._meant(tracks), ours)
        except Retry:
            if not self._consumer.assignment():
                self._consumer.poll(0)  # connection errors are reported only by poll
            self._check_rights()
            raise
        for source, blocked_reason in self._guard.blocked_reasons(track.source for track in self._active()).items():
            self._tracks[source].miss(blocked_reason)
        self._guarded = time.monotonic()
        for track in self._tracks.values():
            track.held.clear()
        self._consumer.assign([TopicPartition(*track.source[:2], track.reached) for track in self._active()])
        self._assigned = True

    def _meant(self, tracks: Sequence[PartitionTrack]) -> list[PartitionTrack]:
        """Partitions whose topics were not recreated. Other errors show when their logs are read."""
        wrong = self._here.unsure(track.source for track in tracks)
        there = self._there.unsure(track.lane.target for track in tracks)
        left = []
        for track in tracks:
            errors = wrong.get(track.source), there.get(track.lane.target)
            if stop := next((error for error in errors if isinstance(error, Stop)), None):
                track.miss(stop)
            else:
                left.append(track)
        return left

    def _check_clusters(self, target: Producer) -> None:
        """Raises `Stop` if both ends are one cluster, `Retry` if one does not respond."""
        try:
            # `cluster_id` of these clients can miss its response and waits for the next one, for a second.
            first = self._lease.assignments[0]
            here = self._consumer.list_topics(first.source.topic, ASK_S).cluster_id
            there = target.list_topics(first.target.topic, ASK_S).cluster_id
        except KafkaException as error:
            raise translated(error.args[0], f"read the cluster ids of both ends of {self._lease.link}") from error
        if not here or not there:
            silent = self._lease.target if here else self._lease.source
            raise Retry(
                f"a response from {silent.name}", f"none within {ASK_S:g} s", "check its brokers and the network"
            )
        if here == there:
            raise Stop(f"link {self._lease.link} to join two clusters", f"{here} twice", "correct the link")
        self._clusters_checked = True

    def _check_ends(self) -> None:
        """Raises `Retry` for an end that was lost and does not respond."""
        for side, error in list(self._down.items()):
            client = self._consumer if side == "source" else self._producer
            topic = next(iter(self._tracks.values())).source.topic
            try:
                if client is not None:
                    client.list_topics(topic, timeout=2.0)
                    del self._down[side]
                    continue
            except KafkaException:
                pass
            raise Retry(f"a response from the {side}", error.str(), "check its brokers and the network")

    def _active(self) -> list[PartitionTrack]:
        return [track for track in self._tracks.values() if track.known and not track.stopped]

    def _watch(self, now: float) -> None:
        """Check the sources' producers at intervals, and permissions after refusals of the whole link."""
        if now - self._guarded > GUARD_S:
            for source, blocked_reason in self._guard.blocked_reasons(track.source for track in self._active()).items():
                if isinstance(blocked_reason, Stop):
                    self._stop(self._tracks[source], str(blocked_reason))
            self._guarded = time.monotonic()
        if self._down:
            self._check_rights()

    def _check_rights(self) -> None:
        """Raises `Stop` if an end refuses the client."""
        self._poll_results(0)
        for side, error in self._down.items():
            if error.code() in LINK_WIDE:
                raise translated(error, f"work with the {side}, {getattr(self._lease, side).name}")

    def _copy_once(self, now: float, until_s: float) -> None:
        """Read the available records and send them, or wait until this is possible."""
        assert self._producer is not None, "copies only between opening and losing its producer"
        if released := self._released():
            self._take(released)
        room = self._rate.records(now, BATCH)
        if room < 1 or self._full(self._producer):
            self._poll_results(min(IDLE_S, until_s - now, max(0.001, self._rate.wait_s(now))))
            return
        messages = self._consumer.consume(room, 0)
        if not messages:
            idle_s = min(IDLE_S, until_s - now)
            self._poll_results(idle_s if self._first else 0)
            one = self._consumer.poll(0 if self._first else idle_s)
            messages = [one] if one is not None else []
        if messages:
            self._down.pop("source", None)
            self._rate.take(len(messages), sum(map(len, messages)))
            self._take(messages)
            few = self._producer is not None and len(self._producer) <= FEW
            self._poll_results(SENT_S if few else 0, at_once=few)

    def _verified(self, messages: list[Message]) -> list[Message]:
        """Those of ``messages`` that were read from the intended topics, and may be written to the intended ones."""
        places = set(map(_place, messages))
        tracks = [track for track in self._active() if track.source[:2] in places]
        wrong = self._here.unsure(track.source for track in tracks)
        for track in tracks:
            if (error := wrong.get(track.source)) is not None:
                self._doubt(track, error)
        more = self._check_targets([track for track in tracks if track.source not in wrong])
        doubted = {source[:2] for source in (*wrong, *more)}
        return [message for message in messages if _place(message) not in doubted] if doubted else messages

    def _check_targets(self, tracks: Sequence[PartitionTrack]) -> list[LogId]:
        """Verify the identity of the target topics of outstanding records and of ``tracks``. Returns the sources of
        those with another identity."""
        self._identified = time.monotonic()
        writing = {track.source: track for track in (*tracks, *(track for track in self._active() if track.pending))}
        wrong = self._there.unsure(track.lane.target for track in writing.values())
        doubted = [track for track in writing.values() if track.lane.target in wrong]
        for track in doubted:
            error = wrong[track.lane.target]
            self._doubt(track, error)
            if isinstance(error, Stop | Missing):  # records in the client must not go to another topic
                track.forget()
                self._failed.append((track, KafkaError(KafkaError._UNKNOWN_TOPIC, str(error))))
                purged(self._producer)
        return [track.source for track in doubted]

    def _doubt(self, track: PartitionTrack, error: TrueupError) -> None:
        """Stop a partition whose topic was recreated; read it again later if this is not known now."""
        if isinstance(error, Stop):
            self._stop(track, str(error))
            return
        track.error = str(error)
        track.held.clear()
        try:
            self._consumer.seek(TopicPartition(*track.source[:2], track.reached))
        except KafkaException as failed:
            self._failed.append((track, failed.args[0]))

    def _full(self, target: Producer) -> bool:
        """Whether enough records wait for the target."""
        held = [message for track in self._tracks.values() for message in track.held] if self._first else []
        size = sum(chunk.size for track in self._tracks.values() for chunk in track.pending) + sum(map(len, held))
        return len(target) + len(held) > AHEAD or size > AHEAD_BYTES

    def _take(self, messages: list[Message]) -> None:
        """Send records, and handle errors between them. After a failure all are read again."""
        messages = self._verified(messages)
        if self._failed:
            return
        errors = [m for m in messages if m.error() is not None] if any(map(_error, messages)) else []
        if errors:
            messages = [m for m in messages if m.error() is None]
        try:
            for place, group in groupby(messages, _place if self._many else _number):
                run = list(group)
                track = self._by_place[place if self._many else _place(run[0])]  # type: ignore[index]
                if not track.stopped and track.known:
                    self._send(track, run)
        except KafkaException as error:
            self._failed.append((None, error.args[0]))
        for message in errors:
            self._handle_error(message)

    def _handle_error(self, message: Message) -> None:
        track, error = self._by_place[_place(message)], message.error()  # type: ignore[index]
        assert error is not None, "only errors come here"
        if track.stopped or not track.known:
            return
        if error.code() == KafkaError._PARTITION_EOF:
            if track.held:
                track.held.append(message)
            elif not self._failed:  # otherwise records before the end may be unsent
                track.end(message.offset() or 0)
        elif error.code() in _LOST:
            self._failed.append((track, error))
        elif not error.retriable():
            ours = translated(error, f"read {track.source} of {self._lease.source.name}")
            track.error = str(ours)
            if isinstance(ours, Stop):
                self._stop(track, str(ours))

    def _stop(self, track: PartitionTrack, reason: str) -> None:
        track.stop(reason)
        if track.known:
            self._consumer.pause([TopicPartition(*track.source[:2])])

    def _send(self, track: PartitionTrack, messages: list[Message]) -> None:
        """Send records of one partition, one by one if one was refused before."""
        messages = _unread(track, messages)
        if track.careful <= 0:
            try:
                if ready := self._introduced(track, messages):
                    self._send_many(track, ready)
                return
            except Broken:
                track.careful = len(messages)
                if not self._drained():
                    self._failed.append((track, KafkaError(KafkaError._TIMED_OUT)))
                    return
                messages = _unread(track, messages)
        for message in messages:
            if track.stopped or not track.known:
                return
            self._single_sender.send(track, message, time.monotonic() + GRACE_S)
            track.careful -= 1

    def _introduced(self, track: PartitionTrack, messages: list[Message]) -> list[Message]:
        """Those of ``messages`` that may be sent now. The first record of a producer is sent to a target alone, see
        `known_leaders`, and the others are held until its result."""
        target, now = track.lane.target, time.monotonic()
        while messages and target not in self._first and not self._known.knows(target, now):
            self._send_many(track, messages[:1])
            messages = messages[1:]
            if track.pending:
                self._first[target] = track
        if target in self._first:
            track.held += messages
            return []
        if messages:
            self._known.renew([target], now)
        return messages

    def _released(self) -> list[Message]:
        """Held messages whose targets have the first record."""
        done = [target for target, track in self._first.items() if not track.pending]
        if not done or self._failed:
            return []
        self._known.renew(done, time.monotonic())
        for target in done:
            del self._first[target]
        released = list[Message]()
        for track in self._tracks.values():
            if track.held and track.lane.target not in self._first:
                released += track.held
                track.held.clear()
        return released

    def _send_many(self, track: PartitionTrack, messages: list[Message]) -> None:
        rewritten = self._rewriter.many(track.prefix, messages)
        chunk = track.chunk((messages[-1].offset() or 0) + 1, messages[0].timestamp()[1], rewritten.offsets)
        chunk.dropped, chunk.filtered, chunk.size = rewritten.dropped, rewritten.filtered, rewritten.size
        if not rewritten.offsets:
            track.settle()
            return
        assert self._producer is not None, "copies only between opening and losing its producer"
        topic, number, none = *(repeat(part, chunk.sent) for part in track.lane.target[:2]), repeat(None, chunk.sent)
        calls = zip(  # positional, because keywords cost a third more; ``none``: the callback's alias
            topic,
            rewritten.values,
            rewritten.keys,
            number,
            chunk.answers(),
            none,
            rewritten.stamps,
            rewritten.headers,
            strict=True,
        )
        try:
            for _ in starmap(self._producer.produce, calls):
                pass
        except BufferError:
            self._failed.append((track, KafkaError(KafkaError._QUEUE_FULL)))

    def _unanswered(self) -> bool:
        return self._producer is not None and len(self._producer) > 0

    def _drained(self) -> bool:
        """Wait for the results of all sent records."""
        deadline = time.monotonic() + GRACE_S
        while self._unanswered() and not self._failed and time.monotonic() < deadline:
            self._poll_results(0.02)
        return not self._unanswered() and not self._failed

    def _recover(self) -> None:
        """After a failure: read each partition's progress at the target, and continue there with a new producer.

        The client does not report which record was refused, so each partition with outstanding results sends some
        records one by one. If none of them is refused alone, their batch was, and batches become smaller.
        """
        if self._single_sender.refused == self._refused and self._recovered:
            self._batch_bytes = max(1, self._batch_bytes // 4)
        self._refused, self._recovered = self._single_sender.refused, True
        self._drop_producer()
        hit = [track for track in self._active() if track.pending or any(track is failed for failed, _ in self._failed)]
        self._failed.clear()
        for track in hit:
            track.careful = min(CAREFUL, track.reached - track.offset)
            track.forget()
            track.known = False
        self._begin(hit, ours=True)

    def _finish(self, until_s: float) -> None:
        """Wait for results; the target is searched for records without a result."""
        deadline = until_s + GRACE_S
        while self._unanswered() and not self._failed:
            if time.monotonic() > deadline:
                self._drop_producer()
                for track in self._active():
                    if track.pending:
                        track.lose("the target did not respond in time")
                return
            self._poll_results(0.02)
        if self._failed:
            self._drop_producer()

    def _drop_producer(self) -> None:
        if self._producer is not None:
            dropped(self._producer)
            self._producer, self._assigned = None, False
            self._known.clear()
            self._first.clear()

    def _poll_results(self, wait_s: float, at_once: bool = False) -> None:
        """Process the target's results, waiting up to ``wait_s`` for the first. A fatal error is one, too.
        ``at_once``: see `served`."""
        if self._producer is None:
            return
        if error := served(self._producer, wait_s, at_once):
            self._failed.append((None, error))
        if self._unanswered() and time.monotonic() - self._identified > IDENTIFY_S:
            self._check_targets([])

    def _error_callback(self, side: str) -> Callable[[KafkaError], None]:
        """The callback for connection errors of a side."""

        def on_error(error: KafkaError) -> None:
            if error.fatal():
                self._failed.append((None, error))
            elif error.code() in LINK_WIDE or error.code() == KafkaError._ALL_BROKERS_DOWN:
                self._down[side] = error

        return on_error


_error, _number = Message.error, Message.partition


def _place(message: Message) -> tuple[str | None, int | None]:
    return message.topic(), message.partition()


def _unread(track: PartitionTrack, messages: list[Message]) -> list[Message]:
    """``messages`` without those that were handled before: a seek may repeat them."""
    if not messages or (messages[0].offset() or 0) >= track.reached:
        return messages
    return [message for message in messages if (message.offset() or 0) >= track.reached]
