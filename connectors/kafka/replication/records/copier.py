"""Copies individual records with librdkafka: each record can be tagged, filtered or refused separately.

Keys, values, headers and timestamps are preserved (a timestamp of exactly 0 cannot be sent, see librdkafka's
``rd_kafka_producev``: it becomes the time of copying). Control records and aborted transactions are not copied.
Delivery is exactly once while one worker copies a partition at a time: the target's tail shows how far the
copy progressed (`target_tail`), and records in flight from a killed predecessor get some time to arrive. A record that
arrives even later is written twice and counted in ``repeated`` by the next copier.
"""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
from trueup.connectors.kafka.replication.records.partitions import Flow
from trueup.connectors.kafka.replication.records.rewrite import Broken, Shape
from trueup.connectors.kafka.replication.records.single_send import Alone
from trueup.connectors.kafka.replication.records.source_guard import Guard
from trueup.connectors.kafka.replication.records.target_tail import KafkaTails, TargetEnds
from trueup.connectors.kafka.replication.records.topic_identity import Identity
from trueup.connectors.replication.rate_limit import Rate
from trueup.connectors.replication.resume import Resume
from trueup.connectors.replication.track import Lane
from trueup.state.common.errors import Retry, Stop, TrueupError

BATCH, AHEAD = 2_000, 40_000
"""Maximum records of one read, and of records that wait for the target."""
AHEAD_BYTES = 64 << 20
YOUNG = 100_000
"""New objects between Python's searches for cycles."""
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
        self._shape = Shape(lease)
        self._failed: list[tuple[Flow | None, KafkaError]] = []
        self._down: dict[str, KafkaError] = {}
        lanes = {a.target: Lane(a.target) for a in lease.assignments}
        self._flows = {a.source: Flow(a, lanes[a.target], lease.flow, self._failed) for a in lease.assignments}
        self._by_place = {source[:2]: flow for source, flow in self._flows.items()}
        for lane in lanes.values():
            lane.shared = sum(a.target == lane.target for a in lease.assignments) > 1
        self._many = len({a.source.topic for a in lease.assignments}) > 1
        source, target = cluster_of(lease.source), cluster_of(lease.target)
        self._here = Identity(source, {a.source.topic: id_of(a.source_id) for a in lease.assignments})
        self._there = Identity(target, {a.target.topic: id_of(a.target_id) for a in lease.assignments})
        self._identified = 0.0
        self._alone = Alone(lease, self._shape, self._there)
        self._rate = Rate(lease.limits, time.monotonic())
        self._guard, self._guarded, self._told_apart = Guard(lease, source), 0.0, False
        self._batch_bytes, self._refused, self._recovered = BATCH_BYTES, 0, False
        self._tails = KafkaTails(lease.target)
        self._resume = Resume(partial(bounds, lease.source), TargetEnds(lease.target, target), self._tails)
        self._producer: Producer | None = None
        self._assigned = False
        self._known = KnownLeaders()
        self._first: dict[LogId, Flow] = {}  # the flow whose first record is in flight, by target
        self._consumer: Consumer = consumer(lease.source, lease.limits, self._heard("source"))
        try:
            self._begin([*self._flows.values()], ours=False)
        except TrueupError:
            self.close()
            raise

    def copy(self, until_s: float, pulse: Callable[[], bool] = lambda: True) -> None:
        """Copy until ``until_s``. See `connectors.contract.Copier.copy`."""
        with _few_collections():
            self._copy(until_s, pulse)

    def _copy(self, until_s: float, pulse: Callable[[], bool]) -> None:
        recoveries = 0
        away = [flow for flow in self._flows.values() if not flow.known and not flow.stopped]
        if away or not self._assigned:
            self._begin(away, ours=True)
        while (now := time.monotonic()) < until_s and pulse():
            if self._failed:
                recoveries += 1
                if recoveries > RECOVERIES:
                    raise Retry("a target that accepts records", self._failed[0][1].str(), "check its brokers")
                self._recover()
            elif self._active():
                self._watch(now)
                self._turn(now, until_s)
            else:
                time.sleep(min(IDLE_S, until_s - now))
        self._finish(until_s)
        self._check_ends()

    def progress(self) -> list[Progress]:
        """The progress since the last call."""
        for source, flow in self._flows.items():
            flow.see(*self._consumer.get_watermark_offsets(TopicPartition(*source[:2]), cached=True))
        now_ms = int(time.time() * 1000)
        return [flow.progress(now_ms) for flow in self._flows.values()]

    def close(self) -> None:
        """Close all connections."""
        self._drop_producer()
        self._consumer.close()
        for part in (self._tails, self._alone, self._here, self._there):
            part.close()

    def _begin(self, flows: Sequence[Flow], ours: bool) -> None:
        """Read the positions of partitions and continue there. ``ours``: this copier wrote to them before."""
        self._assigned = False
        if self._producer is None:
            self._producer = producer(self._lease.target, self._lease.limits, self._heard("target"), self._batch_bytes)
        try:
            if not self._told_apart:
                self._tell_apart(self._producer)
            self._resume.run(self._meant(flows), ours)
        except Retry:
            if not self._consumer.assignment():
                self._consumer.poll(0)  # connection errors are reported only by poll
            self._check_rights()
            raise
        for source, blocked_reason in self._guard.obstacles(flow.source for flow in self._active()).items():
            self._flows[source].miss(blocked_reason)
        self._guarded = time.monotonic()
        for flow in self._flows.values():
            flow.held.clear()
        self._consumer.assign([TopicPartition(*flow.source[:2], flow.reached) for flow in self._active()])
        self._assigned = True

    def _meant(self, flows: Sequence[Flow]) -> list[Flow]:
        """Partitions whose topics were not recreated. Other errors show when their logs are read."""
        wrong = self._here.unsure(flow.source for flow in flows)
        there = self._there.unsure(flow.lane.target for flow in flows)
        left = []
        for flow in flows:
            errors = wrong.get(flow.source), there.get(flow.lane.target)
            if stop := next((error for error in errors if isinstance(error, Stop)), None):
                flow.miss(stop)
            else:
                left.append(flow)
        return left

    def _tell_apart(self, target: Producer) -> None:
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
        self._told_apart = True

    def _check_ends(self) -> None:
        """Raises `Retry` for an end that was lost and does not respond."""
        for side, error in list(self._down.items()):
            client = self._consumer if side == "source" else self._producer
            topic = next(iter(self._flows.values())).source.topic
            try:
                if client is not None:
                    client.list_topics(topic, timeout=2.0)
                    del self._down[side]
                    continue
            except KafkaException:
                pass
            raise Retry(f"a response from the {side}", error.str(), "check its brokers and the network")

    def _active(self) -> list[Flow]:
        return [flow for flow in self._flows.values() if flow.known and not flow.stopped]

    def _watch(self, now: float) -> None:
        """Check the sources' producers at intervals, and permissions after refusals of the whole link."""
        if now - self._guarded > GUARD_S:
            for source, blocked_reason in self._guard.obstacles(flow.source for flow in self._active()).items():
                if isinstance(blocked_reason, Stop):
                    self._stop(self._flows[source], str(blocked_reason))
            self._guarded = time.monotonic()
        if self._down:
            self._check_rights()

    def _check_rights(self) -> None:
        """Raises `Stop` if an end refuses the client."""
        self._hear(0)
        for side, error in self._down.items():
            if error.code() in LINK_WIDE:
                raise translated(error, f"work with the {side}, {getattr(self._lease, side).name}")

    def _turn(self, now: float, until_s: float) -> None:
        """Read the available records and send them, or wait for the obstacle."""
        assert self._producer is not None, "copies only between opening and losing its producer"
        if released := self._released():
            self._take(released)
        room = self._rate.records(now, BATCH)
        if room < 1 or self._full(self._producer):
            self._hear(min(IDLE_S, until_s - now, max(0.001, self._rate.wait_s(now))))
            return
        messages = self._consumer.consume(room, 0)
        if not messages:
            idle_s = min(IDLE_S, until_s - now)
            self._hear(idle_s if self._first else 0)
            one = self._consumer.poll(0 if self._first else idle_s)
            messages = [one] if one is not None else []
        if messages:
            self._down.pop("source", None)
            self._rate.take(len(messages), sum(map(len, messages)))
            self._take(messages)
            self._hear(0)

    def _sure(self, messages: list[Message]) -> list[Message]:
        """Those of ``messages`` that were read from the intended topics, and may be written to the intended ones."""
        places = set(map(_place, messages))
        flows = [flow for flow in self._active() if flow.source[:2] in places]
        wrong = self._here.unsure(flow.source for flow in flows)
        for flow in flows:
            if (error := wrong.get(flow.source)) is not None:
                self._doubt(flow, error)
        more = self._check_targets([flow for flow in flows if flow.source not in wrong])
        doubted = {source[:2] for source in (*wrong, *more)}
        return [message for message in messages if _place(message) not in doubted] if doubted else messages

    def _check_targets(self, flows: Sequence[Flow]) -> list[LogId]:
        """Verify the identity of the target topics of outstanding records and of ``flows``. Returns the sources of
        those with another identity."""
        self._identified = time.monotonic()
        writing = {flow.source: flow for flow in (*flows, *(flow for flow in self._active() if flow.pending))}
        wrong = self._there.unsure(flow.lane.target for flow in writing.values())
        doubted = [flow for flow in writing.values() if flow.lane.target in wrong]
        for flow in doubted:
            error = wrong[flow.lane.target]
            self._doubt(flow, error)
            if isinstance(error, Stop | Missing):  # records in the client must not go to another topic
                flow.forget()
                self._failed.append((flow, KafkaError(KafkaError._UNKNOWN_TOPIC, str(error))))
                purged(self._producer)
        return [flow.source for flow in doubted]

    def _doubt(self, flow: Flow, error: TrueupError) -> None:
        """Stop a partition whose topic was recreated; read it again later if this is not known now."""
        if isinstance(error, Stop):
            self._stop(flow, str(error))
            return
        flow.error = str(error)
        flow.held.clear()
        try:
            self._consumer.seek(TopicPartition(*flow.source[:2], flow.reached))
        except KafkaException as failed:
            self._failed.append((flow, failed.args[0]))

    def _full(self, target: Producer) -> bool:
        """Whether enough records wait for the target."""
        held = [message for flow in self._flows.values() for message in flow.held] if self._first else []
        size = sum(chunk.size for flow in self._flows.values() for chunk in flow.pending) + sum(map(len, held))
        return len(target) + len(held) > AHEAD or size > AHEAD_BYTES

    def _take(self, messages: list[Message]) -> None:
        """Send records, and handle errors between them. After a failure all are read again."""
        messages = self._sure(messages)
        if self._failed:
            return
        said = [m for m in messages if m.error() is not None] if any(map(_error, messages)) else []
        if said:
            messages = [m for m in messages if m.error() is None]
        try:
            for place, group in groupby(messages, _place if self._many else _number):
                run = list(group)
                flow = self._by_place[place if self._many else _place(run[0])]  # type: ignore[index]
                if not flow.stopped and flow.known:
                    self._send(flow, run)
        except KafkaException as error:
            self._failed.append((None, error.args[0]))
        for message in said:
            self._heed(message)

    def _heed(self, message: Message) -> None:
        flow, error = self._by_place[_place(message)], message.error()  # type: ignore[index]
        assert error is not None, "only errors come here"
        if flow.stopped or not flow.known:
            return
        if error.code() == KafkaError._PARTITION_EOF:
            if flow.held:
                flow.held.append(message)
            elif not self._failed:  # otherwise records before the end may be unsent
                flow.end(message.offset() or 0)
        elif error.code() in _LOST:
            self._failed.append((flow, error))
        elif not error.retriable():
            ours = translated(error, f"read {flow.source} of {self._lease.source.name}")
            flow.error = str(ours)
            if isinstance(ours, Stop):
                self._stop(flow, str(ours))

    def _stop(self, flow: Flow, reason: str) -> None:
        flow.stop(reason)
        if flow.known:
            self._consumer.pause([TopicPartition(*flow.source[:2])])

    def _send(self, flow: Flow, messages: list[Message]) -> None:
        """Send records of one partition, one by one if one was refused before."""
        messages = _unread(flow, messages)
        if flow.careful <= 0:
            try:
                if ready := self._introduced(flow, messages):
                    self._send_many(flow, ready)
                return
            except Broken:
                flow.careful = len(messages)
                if not self._drained():
                    self._failed.append((flow, KafkaError(KafkaError._TIMED_OUT)))
                    return
                messages = _unread(flow, messages)
        for message in messages:
            if flow.stopped or not flow.known:
                return
            self._alone.send(flow, message, time.monotonic() + GRACE_S)
            flow.careful -= 1

    def _introduced(self, flow: Flow, messages: list[Message]) -> list[Message]:
        """Those of ``messages`` that may be sent now. The first record of a producer is sent to a target alone, see
        `known_leaders`, and the others are held until its result."""
        target, now = flow.lane.target, time.monotonic()
        while messages and target not in self._first and not self._known.knows(target, now):
            self._send_many(flow, messages[:1])
            messages = messages[1:]
            if flow.pending:
                self._first[target] = flow
        if target in self._first:
            flow.held += messages
            return []
        if messages:
            self._known.renew([target], now)
        return messages

    def _released(self) -> list[Message]:
        """Held messages whose targets have the first record."""
        done = [target for target, flow in self._first.items() if not flow.pending]
        if not done or self._failed:
            return []
        self._known.renew(done, time.monotonic())
        for target in done:
            del self._first[target]
        released = list[Message]()
        for flow in self._flows.values():
            if flow.held and flow.lane.target not in self._first:
                released += flow.held
                flow.held.clear()
        return released

    def _send_many(self, flow: Flow, messages: list[Message]) -> None:
        shaped = self._shape.many(flow.prefix, messages)
        chunk = flow.chunk((messages[-1].offset() or 0) + 1, messages[0].timestamp()[1], shaped.offsets)
        chunk.dropped, chunk.filtered, chunk.size = shaped.dropped, shaped.filtered, shaped.size
        if not shaped.offsets:
            flow.settle()
            return
        assert self._producer is not None, "copies only between opening and losing its producer"
        topic, number, none = *(repeat(part, chunk.sent) for part in flow.lane.target[:2]), repeat(None, chunk.sent)
        calls = zip(  # positional, because keywords cost a third more; ``none``: the callback's alias
            topic, shaped.values, shaped.keys, number, chunk.answers(), none, shaped.stamps, shaped.headers, strict=True
        )
        try:
            for _ in starmap(self._producer.produce, calls):
                pass
        except BufferError:
            self._failed.append((flow, KafkaError(KafkaError._QUEUE_FULL)))

    def _unanswered(self) -> bool:
        return self._producer is not None and len(self._producer) > 0

    def _drained(self) -> bool:
        """Wait for the results of all sent records."""
        deadline = time.monotonic() + GRACE_S
        while self._unanswered() and not self._failed and time.monotonic() < deadline:
            self._hear(0.02)
        return not self._unanswered() and not self._failed

    def _recover(self) -> None:
        """After a failure: read each partition's progress at the target, and continue there with a new producer.

        The client does not report which record was refused, so each partition with outstanding results sends some
        records one by one. If none of them is refused alone, their batch was, and batches become smaller.
        """
        if self._alone.refused == self._refused and self._recovered:
            self._batch_bytes = max(1, self._batch_bytes // 4)
        self._refused, self._recovered = self._alone.refused, True
        self._drop_producer()
        hit = [flow for flow in self._active() if flow.pending or any(flow is failed for failed, _ in self._failed)]
        self._failed.clear()
        for flow in hit:
            flow.careful = min(CAREFUL, flow.reached - flow.offset)
            flow.forget()
            flow.known = False
        self._begin(hit, ours=True)

    def _finish(self, until_s: float) -> None:
        """Wait for results; the target is searched for records without a result."""
        deadline = until_s + GRACE_S
        while self._unanswered() and not self._failed:
            if time.monotonic() > deadline:
                self._drop_producer()
                for flow in self._active():
                    if flow.pending:
                        flow.lose("the target did not respond in time")
                return
            self._hear(0.02)
        if self._failed:
            self._drop_producer()

    def _drop_producer(self) -> None:
        if self._producer is not None:
            dropped(self._producer)
            self._producer, self._assigned = None, False
            self._known.clear()
            self._first.clear()

    def _hear(self, wait_s: float) -> None:
        """Process the target's results, waiting up to ``wait_s`` for the first. A fatal error is one, too."""
        if self._producer is None:
            return
        if error := served(self._producer, wait_s):
            self._failed.append((None, error))
        if self._unanswered() and time.monotonic() - self._identified > IDENTIFY_S:
            self._check_targets([])

    def _heard(self, side: str) -> Callable[[KafkaError], None]:
        """The callback for connection errors of a side."""

        def hear(error: KafkaError) -> None:
            if error.fatal():
                self._failed.append((None, error))
            elif error.code() in LINK_WIDE or error.code() == KafkaError._ALL_BROKERS_DOWN:
                self._down[side] = error

        return hear


@contextmanager
def _few_collections() -> Iterator[None]:
    """Reduces garbage collections: a read creates thousands of short-lived objects, and a search for cycles costs
    a fifth of the CPU and finds none."""
    before = gc.get_threshold()
    gc.set_threshold(YOUNG, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


_error, _number = Message.error, Message.partition


def _place(message: Message) -> tuple[str | None, int | None]:
    return message.topic(), message.partition()


def _unread(flow: Flow, messages: list[Message]) -> list[Message]:
    """``messages`` without those that were handled before: a seek may repeat them."""
    if not messages or (messages[0].offset() or 0) >= flow.reached:
        return messages
    return [message for message in messages if (message.offset() or 0) >= flow.reached]
