"""The environment of Trueup without servers: journal topics, observation of the cluster, and actions on it."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tests.simulation.checkers import Checkers
from tests.simulation.faults import Faults
from tests.simulation.journal import ProcessJournal
from tests.simulation.model import TRUEUP, Ledger, World
from trueup.connectors.bookkeeper.metadata.mark_codec import Mark
from trueup.connectors.bookkeeper.placement.mark_creations import MarkOrder
from trueup.connectors.bookkeeper.placement.marks import MarkOutcome
from trueup.state.bookkeeper.ledgers import MANY, Column, Ledgers, concat, row
from trueup.state.bookkeeper.marks import MARK, NO_MARKS, MarkRows, with_marks
from trueup.state.bookkeeper.observations import LedgerState, Observation, Sighting

BUCKETS = 3


def columns(ledger: Ledger, seen_ms: int) -> Ledgers:
    """The row of a ledger as decoded from its znode."""
    state = LedgerState.UNREADABLE if ledger.unreadable else ledger.state
    ensembles = [] if ledger.unreadable else [f.bookies for f in ledger.fragments]
    return row(
        ledger.id,
        *ensembles,
        quorum=ledger.quorum,
        acks=ledger.acks or ledger.quorum,
        isolation=ledger.isolation,
        state=state,
        mzxid=ledger.mzxid,
        version=ledger.version,
        ctime_ms=ledger.ctime_ms,
        seen_ms=seen_ms,
        entries=0 if ledger.hollow(len(ledger.fragments) - 1) else MANY,
    )


def gone(ledger: int, zxid: int, seen_ms: int) -> Ledgers:
    return row(ledger, quorum=0, state=LedgerState.GONE, mzxid=zxid, version=-1, seen_ms=seen_ms)


class Eyes:
    """The capture: reads changed paths, late and sometimes twice, and the rest after a reconnect.

    Each observation of a path contains its full value at the time of the read. ``marks``: as of the reads of this
    process, None before the first one.
    """

    def __init__(self, world: World, faults: Faults, journal: ProcessJournal, checkers: Checkers) -> None:
        self.world, self.faults, self.journal, self.checkers = world, faults, journal, checkers
        self.due: dict[tuple[str, int], int] = {}
        self.events: dict[tuple[str, int], None] = {}
        world.watchers.append(self.events)
        self.lost_ms: int | None = world.now_ms
        self.marks: MarkRows | None = None
        self.on_sightings: Callable[[Sequence[Sighting]], None] = lambda _: None
        self.published: Callable[[Sequence[Observation]], None] = lambda _: None

    def queue(self) -> None:
        """Queue the events; without a connection they are lost."""
        if self.lost_ms is None:
            for path in self.events:
                wait = self.faults.rng.randint(0, 4_000) if self.faults.happens(self.faults.late) else 0
                self.due.setdefault(path, self.world.now_ms + wait)
        self.events.clear()

    def close(self) -> None:
        """The process ends."""
        self.world.watchers[:] = [events for events in self.world.watchers if events is not self.events]

    @property
    def held(self) -> dict[int, int]:
        """The zxid of each ledger that was published."""
        return self.journal.log.held

    def cut(self) -> None:
        """The connection is lost, with all events that were not processed yet."""
        if self.lost_ms is None:
            self.lost_ms = self.world.now_ms
        self.due.clear()

    def connect(self) -> None:
        """Compare all paths with the published state."""
        self.lost_ms = None
        world = self.world
        self.due.clear()
        for number in sorted(set(world.ledgers) | {i for kind, i in self.journal.log.captured if kind == "ledger"}):
            self.due["ledger", number] = world.now_ms
        self.due["marks", 0] = world.now_ms
        self.due["bookies", 0] = world.now_ms

    def look(self) -> None:
        """Read and publish the paths that are due."""
        if self.lost_ms is not None or self.faults.journal_away:
            return
        paths = [path for path, at in self.due.items() if at <= self.world.now_ms]
        if self.faults.happens(self.faults.again):
            self.faults.rng.shuffle(paths)
        for path in paths:
            self.faults.seam()
            del self.due[path]
            self._read(*path)

    def _read(self, kind: str, number: int) -> None:
        if kind == "ledger":
            self._ledger(number)
        elif kind == "marks":
            self.marks = with_marks(NO_MARKS, self._marks(self.world.mark_zxid))
        elif kind == "mark":
            self.marks = with_marks(self.marks, self._marks([number])) if self.marks is not None else None
        else:
            self._bookies()

    def _ledger(self, number: int) -> None:
        world, ledger = self.world, self.world.ledgers.get(number)
        zxid = ledger.mzxid if ledger else world.deleted[number]
        if self.journal.log.captured.get(("ledger", number)) == zxid:
            return
        self.journal.lead()
        self.journal.log.captured["ledger", number] = zxid
        content = columns(ledger, world.now_ms) if ledger else gone(number, zxid, world.now_ms)
        self._publish(content)
        value: Any = {"ledger": number, "state": int(content.state[0])}
        self.published([Observation("ledgers", b"", value)])
        if ledger:
            self.held[number] = zxid
        else:
            self.held.pop(number, None)

    def _marks(self, numbers: Iterable[int]) -> MarkRows:
        world, rows = self.world, [NO_MARKS]
        for number in numbers:
            mark, locked = world.marks.get(number), number in world.locks
            values = (number, mark.ctime_ms if mark else -1, mark.version if mark else -1, locked)
            rows.append(np.array([values], MARK))
            self.checkers.mark_arrived(number, world.mark_zxid[number])
        return np.concatenate(rows)

    def _publish(self, content: Ledgers) -> None:
        topic = self.journal.log.ledgers
        topic.append(content)
        while self.faults.happens(self.faults.again):
            topic.append(self.faults.rng.choice(topic[-6:]))

    def _bookies(self) -> None:
        sightings = [
            Sighting(b.id, b.rack or None, "" if b.state == "down" else b.state, b.cookie, b.registered_zxid, groups)
            for b, groups in self.world.listed()
            if b.cookie or b.state != "down"
        ]
        self.checkers.sighted(sightings)
        self.on_sightings(sightings)


class Hands:
    """Replaces the connector: `streams.placement.reconciler.Cluster` over the true state, with lost responses.
    ``fence``: called in each transaction; raises if another leader's changes are taken."""

    def __init__(
        self, world: World, faults: Faults, eyes: Eyes, checkers: Checkers, stale_ms: int, fence: Callable[[], None]
    ) -> None:
        self.world, self.faults, self.eyes, self.checkers, self.stale_ms = world, faults, eyes, checkers, stale_ms
        self.fence = fence

    def read(self, ledgers: Sequence[int]) -> Ledgers:
        self.faults.acting()
        rows = [columns(self.world.ledgers[i], self.world.now_ms) for i in ledgers if i in self.world.ledgers]
        self.faults.seam()
        return concat(rows)

    def outdated(self) -> Column:
        return np.zeros(0, np.int64)

    def blocked_reason(self) -> str:
        if self.world.disabled:
            return "BookKeeper's recovery is disabled"
        lost = self.eyes.lost_ms
        return "blind" if lost is not None and self.world.now_ms - lost > self.stale_ms else ""

    def marks(self) -> MarkRows | None:
        return self.eyes.marks

    def mark(self, orders: Sequence[MarkOrder]) -> list[MarkOutcome]:
        self.faults.seam()
        if self.faults.refused:
            return [MarkOutcome(order.ledger, "retry", "connection refused") for order in orders]
        return [self._mark(order) for order in orders]

    def _mark(self, order: MarkOrder) -> MarkOutcome:
        """Checks and writes one order as `connectors.bookkeeper.placement.marks.Marks` does."""
        self.faults.seam(acts=True)
        lost = self.faults.answer_lost()
        if lost and self.faults.happens(0.5):
            return MarkOutcome(order.ledger, "unknown", "nothing was written")
        self.fence()
        ledger, mark = self.world.ledgers.get(order.ledger), self.world.marks.get(order.ledger)
        if ledger is None:
            return MarkOutcome(order.ledger, "gone", "the ledger was deleted")
        if ledger.version != order.version:
            return MarkOutcome(order.ledger, "refused", f"found version {ledger.version}")
        if mark is not None and set(order.replicas) <= set(mark.replicas):
            return MarkOutcome(order.ledger, "already", "it is marked", mark.version, mark.zxid)
        self.checkers.marking(ledger, order.version)
        written = self.world.mark(order.ledger, order.replicas, order.ctime_ms, TRUEUP)
        self.checkers.marked(ledger)
        self.faults.seam()
        if lost:
            return MarkOutcome(order.ledger, "unknown", "the answer was lost")
        return MarkOutcome(order.ledger, "written", "", written.version, written.zxid)

    def marked(self, ledgers: Sequence[int]) -> dict[int, Mark]:
        self.faults.acting()
        found = ((number, self.world.marks.get(number)) for number in ledgers)
        return {number: Mark(mark.replicas, mark.ctime_ms) for number, mark in found if mark is not None}

    def withdraw(self, items: Sequence[tuple[int, int]]) -> list[MarkOutcome]:
        return [self._withdraw(*item) for item in items]

    def _withdraw(self, ledger: int, version: int) -> MarkOutcome:
        self.faults.seam(acts=True)
        if self.faults.refused:
            return MarkOutcome(ledger, "retry", "connection refused")
        lost = self.faults.answer_lost()
        if lost and self.faults.happens(0.5):
            return MarkOutcome(ledger, "unknown", "nothing was written", version)
        self.fence()
        mark = self.world.marks.get(ledger)
        if mark is None:
            return MarkOutcome(ledger, "gone", "there is no mark")
        if mark.version != version:
            return MarkOutcome(ledger, "refused", f"the mark no longer has version {version}")
        self.checkers.withdrawing(ledger, mark)
        self.world.unmark(ledger, TRUEUP)
        self.faults.seam()
        return MarkOutcome(ledger, "unknown" if lost else "withdrawn", "", version)
