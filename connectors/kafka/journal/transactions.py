"""Writes of one leader: each is a transaction of a producer that the next leader fences.

`Transactions` initialises the transactional.id, which aborts a transaction in progress of the previous owner and fails
all of its later writes (KIP-98).
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer

from trueup.state.common.errors import Stop, TrueupError

ABORT_S = 5.0


class Signed(NamedTuple):
    """A deletion with a header: its name and value."""

    name: str
    value: bytes


Body = bytes | Signed | None
"""None or a signed deletion removes its key."""
Part = tuple[str, Sequence[bytes], Sequence[Body]]
"""Topic, keys and bodies."""
Translate = Callable[[KafkaError, str], TrueupError]
FENCED = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
    }
)


def produce(producer: Producer, topic: str, key: bytes, body: Body, partition: int = -1) -> None:
    """Add a record to the queue. ``partition``: the partition of the record; -1: the key selects it. Raises
    `BufferError` if the queue is full."""
    if isinstance(body, Signed):
        producer.produce(topic, None, key, partition, headers=[body])
    elif partition < 0:
        producer.produce(topic, body, key)
    else:
        producer.produce(topic, body, key, partition)


def enqueue(producer: Producer, parts: Iterable[Part], partition: int = -1) -> None:
    """`produce` for each record; waits for room while the queue is full."""
    for topic, keys, bodies in parts:
        for key, body in zip(keys, bodies, strict=True):
            while True:
                try:
                    produce(producer, topic, key, body, partition)
                except BufferError:
                    producer.poll(0.1)
                else:
                    break


class Transactions:
    """The producer with this transactional.id. Used by one thread at a time. ``fenced``: called when another producer
    took the id over, or when the client cannot continue."""

    def __init__(
        self, client: Mapping[str, Any], name: str, translate: Translate, fenced: Callable[[str], object]
    ) -> None:
        self._client = {**client, "transactional.id": name}
        self._producer = Producer(self._client)
        self._translate, self._fenced = translate, fenced
        self._open = False
        """Whether the outcome of the last transaction is not known yet."""
        self._cut = False
        """Whether the open transaction lacks records and must not be committed."""

    def begin(self, within_s: float) -> None:
        """Take over the transactional.id. Raises `Retry`, after which a repetition goes on with the same request, or
        `Stop` without the permission."""
        try:
            self._producer.init_transactions(within_s)
        except KafkaException as error:
            if not error.args[0].retriable():
                self._producer = Producer(self._client)
            raise self._translate(error.args[0], "take over the journal's transactional.id") from error

    def write(self, parts: Iterable[Part], within_s: float) -> None:
        """Write these records atomically. Raises `Retry` with unknown outcome, or `Stop`."""
        until_s = time.monotonic() + within_s
        try:
            if self._cut:
                self._abort()
            elif self._open:
                self._commit(until_s)
            self._producer.begin_transaction()
            self._open = self._cut = True
            enqueue(self._producer, parts)
            self._cut = False
            self._commit(until_s)
        except KafkaException as error:
            raise self._failed(error.args[0]) from error

    def _commit(self, until_s: float) -> None:
        """Commit the open transaction. A commit without a response is repeated: the brokers apply it once."""
        while True:
            try:
                self._producer.commit_transaction(max(0.1, until_s - time.monotonic()))
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() >= until_s:
                    raise
            else:
                self._open = False
                return

    def _abort(self) -> None:
        self._producer.abort_transaction(ABORT_S)
        self._open = self._cut = False

    def _failed(self, error: KafkaError) -> TrueupError:
        """End a failed transaction."""
        if error.code() in FENCED or error.fatal():
            self._fenced(f"the journal refused a write: {error.str()}")
            return Stop("to write to the journal as the leader", error.str(), "none: another instance leads")
        if error.txn_requires_abort() or self._cut:
            with suppress(KafkaException):
                self._abort()
        return self._translate(error, "write to the journal")
