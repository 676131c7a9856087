"""What binds the tag of a copy to the message that a link wrote.

The tag of a copy is the properties `names.TAG`. Applications that send a message again pass its properties on, and so
do RocketMQ's retry and dead-letter flows. Such a message is a new one: no link wrote it. Therefore the tag has a digest
of the clusters passed, the mark and the time, together with what a message gets anew when it is sent again: the id of
the cluster, the topic and the queue; the time of birth that the broker stores, which a producer sets when it sends
(DefaultMQProducerImpl.java, sendKernelImpl); the size of the body; and UNIQ_KEY, which a producer adds if there is none
(MessageClientIDSetter.java). A message that a broker moves for a retry keeps its time of birth, but gets another topic
(AbstractSendMessageProcessor.java, consumerSendMsgBack; PopReviveService.java, reviveRetry).

The digest is not a secret: whoever wants to imitate a link can. It is computed for many messages at once or for one.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from trueup.connectors.contract import LogId
from trueup.connectors.replication.remembered import BoundedCache
from trueup.connectors.rocketmq.protocol.block import hash_of
from trueup.connectors.rocketmq.replication.records import names

Array = NDArray[Any]
T = TypeVar("T", int, Array)
WORD = 8
PREFIX = slice(0, WORD)
"""Bytes of a mark (`replication.headers`) before the source offset, which has as many."""
_ALL = (1 << 64) - 1
_BORN, _PLACE, _TIME, _SIZE, _UNIQUE, _LAST = (
    0x9E37_79B9_7F4A_7C15,
    0xBF58_476D_1CE4_E5B9,
    0x94D0_49BB_1331_11EB,
    0xD6E8_FEB8_6659_FD93,
    0xA076_1D64_78BD_642F,
    0xE703_7ED1_A0B4_28DB,
)
"""Odd numbers of 64 bits, one for each part."""


class MessageTag(NamedTuple):
    """The tag of a message that a link wrote."""

    passed: bytes
    """The clusters passed."""
    mark: bytes
    """The mark of the copy (`replication.headers`), without the digest of the tag."""
    time_ms: int
    """The time of birth of the original message, or the timestamp of the original record, in ms since 1970."""


class Binding:
    """Binds tags to the messages of one queue. ``cluster``: the id of its cluster."""

    def __init__(self, cluster: str, log: LogId) -> None:
        self.log, self._place = log, f"{cluster}/{log.topic}/{log.number}/".encode()
        self._seeds = BoundedCache[bytes, int]()

    def seed(self, passed: bytes, prefix: bytes) -> int:
        """What the digests of copies with this path and prefix have in common."""
        key = prefix + passed
        seed = self._seeds.get(key)
        if seed is None:
            number = int.from_bytes(blake2b(self._place + key, digest_size=WORD).digest(), "big")
            seed = self._seeds.keep(key, len(key), number)
        return seed

    def tag_of(self, properties: Mapping[bytes, bytes], born: int, size: int) -> MessageTag | None:
        """The tag among the properties of a message, with this time of birth and size of the body; None if no link
        wrote the message."""
        passed, mark = properties.get(names.SOURCE), names.from_base64(properties.get(names.OFFSET, b""))
        time_ms = names.time_in(properties[names.TIME]) if names.TIME in properties else born
        if not passed or mark is None or len(mark) != names.MARK_BYTES or time_ms is None:
            return None
        place, unique = int.from_bytes(mark[WORD : 2 * WORD], "big"), hash_of(properties.get(names.UNIQUE, b""))
        expected = digest(self.seed(passed, mark[PREFIX]), born, place, time_ms, size, unique)
        own = mark[2 * WORD :] == expected.to_bytes(WORD, "big")
        return MessageTag(passed, mark[: 2 * WORD], time_ms) if own else None

    def marked(self, passed: bytes, mark: bytes, born: int, time_ms: int, size: int, raw: bytes) -> bytes:
        """The value of `names.OFFSET` for a copy with these other properties."""
        unique = hash_of(names.value_in(raw, names.UNIQUE))
        place = int.from_bytes(mark[WORD:], "big")
        own = digest(self.seed(passed, mark[PREFIX]), born, place, time_ms, size, unique)
        return names.to_base64(mark + own.to_bytes(WORD, "big"))


def digest(seed: int, born: int, place: T, time_ms: T, size: T, unique: T) -> T:
    """The digest for a source offset and the other parts of one message or, as arrays of uint64, of several."""
    common = (seed + born * _BORN) & _ALL
    mixed = (common + place * _PLACE + time_ms * _TIME + size * _SIZE + unique * _UNIQUE) & _ALL
    mixed = (mixed ^ mixed >> 32) * _LAST & _ALL
    result: T = mixed ^ mixed >> 29
    return result


def unsigned(values: Array) -> Array:
    """The same numbers modulo 2**64."""
    numbers: Array = values.astype(np.int64).view(np.uint64)
    return numbers
