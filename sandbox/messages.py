"""Topics with known content, written and read back by Pulsar's client.

The content of a message is a function of its topic and number, so that a reader needs no record of the writes.
Each message is a separate entry. Topics are named ``tenant/namespace/name``.
"""

import hashlib
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import pulsar

from trueup.connectors.closing import Closing
from trueup.state.common.errors import Unknown

PATIENCE_S = 120
"""A broker that is killed and started again responds within this time."""

_T = TypeVar("_T")


def payload(topic: str, number: int, size: int = 256) -> bytes:
    """The ``size`` bytes (at least 24) of message ``number`` of a topic, including its number."""
    head = b"%d:" % number
    return head + hashlib.shake_128(f"{topic}:{number}:{size}".encode()).digest(max(size - len(head), 0))


class MessagesReadback(NamedTuple):
    """The result of reading a topic."""

    numbers: tuple[int, ...]
    """The numbers of the correct messages, in order."""
    incorrect: int = 0
    """The number of incorrect messages."""

    def missing(self, numbers: range) -> list[int]:
        """Those of ``numbers`` that were not read."""
        received = set(self.numbers)
        return [number for number in numbers if number not in received]


class MessageClient(Closing):
    """A client of a cluster by its service URL. It logs to the file ``log``."""

    def __init__(self, service_url: str, log: Path = Path(os.devnull)) -> None:
        logger = pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(log))
        self._client = pulsar.Client(service_url, operation_timeout_seconds=PATIENCE_S, logger=logger)

    def write(self, topic: str, numbers: range, size: int = 256) -> None:
        """Append these messages and wait until all are acknowledged. Raises `Unknown` if one is not."""
        producer = self._producer(topic)
        failed: list[str] = []

        def on_result(result: object, _id: object) -> None:
            if result != pulsar.Result.Ok:
                failed.append(str(result))

        what = f"messages {numbers} of {topic} written"
        for number in numbers:
            _call(what, partial(producer.send_async, payload(topic, number, size), on_result))
        _call(what, producer.flush)
        _call(what, producer.close)
        if failed:
            raise Unknown(what, f"{len(failed)} failed, first {failed[0]}", _SEE)

    def read(self, topic: str) -> MessagesReadback:
        """Read a topic from its first message to its last. Raises `Unknown` if the read fails before the end."""
        what = f"{topic} read to its end"
        reader = _call(what, lambda: self._client.create_reader(_full(topic), pulsar.MessageId.earliest))
        contents = []
        while _call(what, reader.has_message_available):
            contents.append(_call(what, lambda: reader.read_next(PATIENCE_S * 1_000).data()))
        _call(what, reader.close)
        return compare(topic, contents)

    def writer(self, topic: str, pause_s: float = 0.0) -> "LiveWriter":
        """A thread that appends messages 0, 1, 2 ... until it is stopped, with ``pause_s`` between them."""
        return LiveWriter(topic, self._producer(topic), pause_s)

    def close(self) -> None:
        """Close the client with its producers and readers."""
        _call("the client to end", self._client.close)

    def _producer(self, topic: str) -> pulsar.Producer:
        options = {"send_timeout_millis": PATIENCE_S * 1_000, "block_if_queue_full": True, "batching_enabled": False}
        return _call(f"a producer of {topic}", lambda: self._client.create_producer(_full(topic), **options))


class LiveWriter(Closing):
    """Writes from its creation on. A message that is retried after a failure may be duplicated."""

    def __init__(self, topic: str, producer: pulsar.Producer, pause_s: float) -> None:
        self.topic = topic
        self._producer, self._pause_s = producer, pause_s
        self._acknowledged, self._ending = 0, threading.Event()
        self._error: Unknown | None = None
        self._thread = threading.Thread(target=self._write, name=f"writer of {topic}", daemon=True)
        self._thread.start()

    @property
    def acknowledged(self) -> range:
        """Numbers of the messages acknowledged so far."""
        return range(self._acknowledged)

    def stop(self) -> range:
        """Stop, and return the numbers of all acknowledged messages. Raises `Unknown` if a send failed finally."""
        self._ending.set()
        self._thread.join()
        if self._error:
            raise self._error
        return self.acknowledged

    def close(self) -> None:
        """Stop immediately, whatever the result of the last message."""
        self._ending.set()
        if self._thread.is_alive():
            _call(f"the producer of {self.topic} to end", self._producer.close)
        self._thread.join()

    def _write(self) -> None:
        try:
            while not self._ending.is_set():
                content = payload(self.topic, self._acknowledged)
                _call(f"message {self._acknowledged} of {self.topic} written", partial(self._producer.send, content))
                self._acknowledged += 1
                self._ending.wait(self._pause_s)
        except Unknown as error:
            self._error = error


def compare(topic: str, contents: list[bytes]) -> MessagesReadback:
    """Compare the messages read with the expected ones."""
    numbers = [number for number in (_number(topic, content) for content in contents) if number is not None]
    return MessagesReadback(tuple(numbers), len(contents) - len(numbers))


def _number(topic: str, content: bytes) -> int | None:
    """The number of a message; None if its content does not match the number."""
    digits = content.partition(b":")[0]
    number = int(digits) if digits.isdigit() else -1
    return number if number >= 0 and content == payload(topic, number, len(content)) else None


def _full(topic: str) -> str:
    return f"persistent://{topic}"


_SEE = "check that the broker and the bookies run, and their logs"


def _call(expected: str, call: Callable[[], _T]) -> _T:
    try:
        return call()
    except pulsar.PulsarException as error:
        raise Unknown(expected, str(error) or type(error).__name__, _SEE) from error
