"""The journal without a broker: durable topics of encoded records, and what one process of Trueup sees of them."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from typing import Any

from tests.journals import formed
from tests.simulation.faults import Faults
from trueup.state.bookkeeper.ledgers import Ledgers
from trueup.state.common.errors import Stop
from trueup.streams.journal.codec import encode
from trueup.streams.journal.journal import JournalRecord

TOPOLOGY = "topology"


class JournalLog:
    """The topics, which outlive every process. Rows of ledgers stay columns, as Spark's decoder is not part of the
    simulation."""

    def __init__(self) -> None:
        self.bodies: dict[str, list[tuple[bytes, bytes | None]]] = defaultdict(list)
        self.ledgers: list[Ledgers] = []
        self.epoch = 0
        """The epoch of the newest process that took the producer over; the writes of earlier ones are refused."""
        self.captured: dict[tuple[str, int], int] = {}
        """The zxid of the newest row of each path, which a capture learns from the topics."""
        self.held: dict[int, int] = {}
        """The same for ledgers that exist."""

    def append(self, what: str, key: bytes, value: Any) -> None:
        """Append a record; None deletes the key."""
        self.bodies[what].append((key, None if value is None else encode(what, value)))

    def compacted(self, what: str, end: int | None = None) -> Iterator[JournalRecord]:
        """The newest record of each key up to an offset, deletions included, in the order of the log."""
        newest: dict[bytes, int] = {}
        for at, (key, _) in enumerate(self.bodies[what][:end]):
            newest.pop(key, None)
            newest[key] = at
        for at in newest.values():
            yield self.record(what, at)

    def record(self, what: str, at: int) -> JournalRecord:
        """The record at an offset."""
        key, body = self.bodies[what][at]
        return JournalRecord(key, formed(what, key, body), f"{what} {at}", at)

    def newest(self, what: str) -> dict[bytes, Any]:
        """The newest value of each key."""
        return {record.key: record.value for record in self.compacted(what) if record.value is not None}


class ProcessJournal:
    """Replaces `streams.journal.journal.Journal` in one process. ``epoch``: the epoch of this leader; None if its
    producer has no transactions, as that of signs of life. ``wrote``: called with the topic of each record."""

    def __init__(
        self, log: JournalLog, faults: Faults, epoch: int | None = 0, wrote: Callable[[str], None] = lambda _: None
    ) -> None:
        self.log, self.epoch, self._faults, self.wrote = log, epoch, faults, wrote
        self.fenced: Callable[[str], object] = lambda _: None
        self._followed: dict[str, int] = {}

    def put(self, records: Iterable[tuple[str, bytes, Any]], within_s: float = 0.0) -> None:
        """See `Journal.put`: a failure may occur after some records were written."""
        del within_s
        for what, key, value in records:
            self._faults.journal()
            self.lead()
            self.log.append(what, key, value)
            self.wrote(what)
        self._faults.seam()

    def lead(self) -> None:
        """The broker refuses a producer that another process took over. Raises `Stop`."""
        if self.epoch is not None and self.epoch < self.log.epoch:
            self.fenced("the journal")
            raise Stop("this instance to lead", f"the producer of epoch {self.log.epoch}", "none: it ends")

    def send(self, parts: Iterable[tuple[str, Sequence[bytes], Sequence[bytes | None]]], within_s: float = 0.0) -> None:
        """See `Journal.send`: findings, which the simulation does not read."""
        del within_s
        for _, keys, _ in parts:
            for _ in keys:
                self._faults.journal()
                self.lead()
        self._faults.seam()

    def topic(self, what: str) -> str:
        """See `Journal.topic`."""
        return what

    def ends(self, what: str) -> dict[int, int]:
        """See `Journal.ends`: every topic has one partition."""
        return {0: len(self.log.ledgers if what == "ledgers" else self.log.bodies[what])}

    def read(self, what: str, bad: object = None, last: int | None = None) -> Iterator[JournalRecord]:
        """See `Journal.read`, of a compacted topic."""
        del bad
        return iter([*self.log.compacted(what)][-last if last else 0 :])

    def newest(self, what: str, problems: MutableMapping[bytes, str] | None = None) -> dict[bytes, Any]:
        """See `Journal.newest`."""
        del problems
        return self.log.newest(what)

    def follow(self, what: str, stop: threading.Event, seen: Callable[[JournalRecord], None], old: bool = True) -> None:
        """See `Journal.follow`, up to the present end. Without ``old``, begins at the end of the first call."""
        del stop
        begin = self._followed.setdefault(what, 0 if old else len(self.log.bodies[what]))
        for at in range(begin, len(self.log.bodies[what])):
            self._followed[what] = at + 1
            seen(self.log.record(what, at))

    def channel(self, what: str) -> None:
        """See `Journal.channel`: leases send no reports while they run."""
        del what
