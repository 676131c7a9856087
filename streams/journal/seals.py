"""Signs the records of one journal, and refuses those without a valid signature and those that are written again."""

import threading
from collections.abc import Sequence

from trueup.connectors.kafka.journal.topics import TopicRecord
from trueup.connectors.kafka.journal.transactions import Body, Signed
from trueup.state.common.errors import BadBytes
from trueup.streams.journal.signing import HEADER, SIZE, Signer, number_now, signer_of
from trueup.streams.journal.topic import topic_of

REMEMBERED = 200_000
"""Maximum number of keys of a topic whose newest signature is known: orders of ledgers come and go."""


class Seals:
    """Without keys nothing is signed or refused. Safe to use from several threads."""

    def __init__(self, keys: Sequence[bytes], prefix: str, cluster: str) -> None:
        self._keys, self._prefix, self._cluster = keys, prefix, cluster
        self._lock = threading.Lock()
        self._number = 0
        self._signers: dict[str, Signer] = {}
        self._newest: dict[str, dict[bytes, tuple[int, int]]] = {}

    def signer(self, topic: str) -> Signer | None:
        """What signs the records of a topic; None if nothing does."""
        if not self._keys or topic_of(topic).unsigned:
            return None
        if topic not in self._signers:
            self._signers[topic] = signer_of(self._keys, self._prefix, self._cluster, topic)
        return self._signers[topic]

    def seal(self, topic: str, keys: Sequence[bytes], bodies: Sequence[Body]) -> Sequence[Body]:
        """The bodies with their signatures if the topic is signed; deletions, which are None, with theirs."""
        signer = self.signer(topic)
        if signer is None:
            return bodies
        return [self._sealed(signer, key, body) for key, body in zip(keys, bodies, strict=True)]

    def _sealed(self, signer: Signer, key: bytes, body: Body) -> Body:
        with self._lock:
            # Above those that were read, if the clock is late.
            self._number = number = max(self._number + 1, number_now())
        if isinstance(body, bytes):
            return body + signer.signature(key, number, body)
        return Signed(HEADER, signer.signature(key, number, None))

    def opened(self, topic: str, entry: TopicRecord) -> bytes | None:
        """The body of a record without its signature."""
        return entry.body[:-SIZE] if entry.body is not None and self.signer(topic) else entry.body

    def check(self, topic: str, entry: TopicRecord) -> None:
        """Raises `BadBytes` if a record has no valid signature, or is older than the one before it of its key."""
        signer = self.signer(topic)
        if signer is None:
            return
        number = signer.verify(entry.key, entry.body, entry.headers.get(HEADER, b""), entry.where)
        with self._lock:
            self._number = max(self._number, number)
            if not topic_of(topic).ordered:
                return
            numbers = self._newest.setdefault(topic, {})
            newest, offset = numbers.get(entry.key, (-1, -1))
            if entry.offset <= offset:
                return
            if number <= newest:
                todo = "it is skipped; if nobody restored the topic, check who may write it"
                raise BadBytes(entry.where, 0, f"a record newer than the one at offset {offset}", "an older one", todo)
            numbers.pop(entry.key, None)  # the oldest keys are first
            numbers[entry.key] = number, entry.offset
            while len(numbers) > REMEMBERED:
                del numbers[next(iter(numbers))]
