"""Signs the records of one journal, and refuses those without a valid signature and those that are written again."""

import threading
import time
from collections.abc import Sequence

from trueup.connectors.kafka.journal.topics import Entry
from trueup.connectors.kafka.journal.transactions import Body, Signed
from trueup.state.common.errors import BadBytes
from trueup.streams.journal.signing import HEADER, SIZE, Place, signature, verify
from trueup.streams.journal.topic import topic_of

REMEMBERED = 200_000
"""Maximum number of keys whose newest signature is known: orders of ledgers come and go."""


class Seals:
    """Without keys nothing is signed or refused. Safe to use from several threads."""

    def __init__(self, keys: Sequence[bytes], prefix: str, cluster: str) -> None:
        self._keys, self._prefix, self._cluster = keys, prefix, cluster
        self._lock = threading.Lock()
        self._number = 0
        self._newest: dict[tuple[str, bytes], tuple[int, int]] = {}

    def seal(self, topic: str, keys: Sequence[bytes], bodies: Sequence[Body]) -> Sequence[Body]:
        """The bodies with their signatures if the topic is signed; deletions, which are None, with theirs."""
        if not self._keys or not topic_of(topic).signed:
            return bodies
        return [self._sealed(self._place(topic, key), body) for key, body in zip(keys, bodies, strict=True)]

    def _sealed(self, place: Place, body: Body) -> Body:
        with self._lock:
            # By the clock, so that it exceeds those of earlier runs; above those that were read, if the clock is late.
            self._number = number = max(self._number + 1, time.time_ns() // 1_000)
        if isinstance(body, bytes):
            return body + signature(self._keys[0], place, number, body)
        return Signed(HEADER, signature(self._keys[0], place, number, None))

    def opened(self, topic: str, entry: Entry) -> bytes | None:
        """The body of a record without its signature."""
        if entry.body is None or not self._keys or not topic_of(topic).signed:
            return entry.body
        return entry.body[:-SIZE]

    def check(self, topic: str, entry: Entry) -> None:
        """Raises `BadBytes` if a record has no valid signature, or is older than the one before it of its key."""
        if not self._keys or not topic_of(topic).signed:
            return
        header = entry.headers.get(HEADER, b"")
        number = verify(self._keys, self._place(topic, entry.key), entry.body, header, entry.where)
        place = topic, entry.key
        with self._lock:
            self._number = max(self._number, number)
            newest, offset = self._newest.get(place, (-1, -1))
            if entry.offset <= offset or not topic_of(topic).ordered:
                return
            if number <= newest:
                todo = "it is skipped; if nobody restored the topic, check who may write it"
                raise BadBytes(entry.where, 0, f"a record newer than the one at offset {offset}", "an older one", todo)
            self._newest.pop(place, None)  # the oldest places are first
            self._newest[place] = number, entry.offset
            while len(self._newest) > REMEMBERED:
                del self._newest[next(iter(self._newest))]

    def _place(self, topic: str, key: bytes) -> Place:
        return Place(self._prefix, self._cluster, topic, key)
