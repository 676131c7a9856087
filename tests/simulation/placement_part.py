"""Placement in the world: the cluster and its operators make events, and in the end the board shows the true state."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from tests.simulation.checkers import Checkers
from tests.simulation.instances import Current, Leader, Process
from tests.simulation.model import COLLECT_MS, Ledger
from tests.simulation.part import Part, Surroundings
from tests.simulation.placing import PlacementParts, Placing, checkpoint
from tests.simulation.surroundings import Eyes, Hands
from trueup.state.common.errors import Retry
from trueup.state.placement.settings import PlacementSettings

STALE_MS = (30_000, 120_000)


class PlacementPart(Part):
    """Bookies, ledgers of other applications, marks and workers, and what Trueup does about them."""

    name = "placement"
    watch: type[Checkers] = Checkers
    acts: type[Hands] = Hands

    def __init__(self, around: Surroundings, parts: PlacementParts) -> None:
        super().__init__(around)
        self.parts = parts
        self.checkers, self.checkpoint = self.watch(self.world), checkpoint()
        self.stale_ms = self.rng.choice(STALE_MS)
        self.own = set[int]()
        """The ledgers that this part writes."""
        self._populate()

    def sections(self) -> Mapping[str, Any]:
        return {self.name: self._policy()}

    @property
    def placing(self) -> Placing | None:
        """The stream of the present leader."""
        found: Placing | None = self.around.stream(self.name)
        return found

    def begin(self, process: Process, leader: Leader, _made: Callable[[str], Any]) -> Placing:
        current: Any = Current(self.checkers)
        self.checkers.restarted()
        leader.journal.wrote = lambda what: current.remembered() if what == "topology" else None
        eyes = Eyes(self.world, process.faults, leader.journal, current)
        hands = self.acts(self.world, process.faults, eyes, current, self.stale_ms, leader.fence)
        return self._placing(leader, eyes, hands, current)

    def _placing(self, leader: Leader, eyes: Eyes, hands: Hands, current: Any) -> Placing:
        return Placing(leader, eyes, hands, self.checkpoint, current, self.parts)

    def taken_over(self) -> None:
        self.checkpoint = checkpoint()
        self.checkers.forgotten()

    def compacted(self) -> None:
        self.taken_over()
        ledgers = sorted(self.log.ledgers, key=lambda row: int(row.mzxid[0]))
        self.log.ledgers[:] = {int(row.ledger[0]): row for row in ledgers}.values()

    def advanced(self) -> None:
        self.checkers.step()

    def _policy(self) -> PlacementSettings:
        rng = self.rng
        return PlacementSettings(
            mode=rng.choice(("enforce", "enforce", "enforce", "approve", "observe")),
            grace_s=rng.choice((0.0, 2.0, 10.0)),
            hold_share=rng.choice((0.3, 0.5)),
            max_marks=rng.choice((1, 2, 5, 50)),
            marks_per_s=rng.choice((0.5, 5.0, 500.0)),
            decline_retry_s=rng.choice((1.0, 10.0)),
            give_up_s=rng.choice((120.0, 1_800.0)),
            collect_s=COLLECT_MS / 1000,
            min_racks=self.world.least,
            enforce_min_racks=self.world.enforce,
        )

    def _populate(self) -> None:
        rng, world = self.rng, self.world
        racks = self._locations()
        for number in range(rng.randint(3, 8)):
            world.start(f"b{number}", racks[number % len(racks)] if rng.random() < 0.9 else rng.choice(racks))
        world.moves_racks = rng.random() < 0.9
        self.racks = racks
        for _ in range(rng.randint(3, 14)):
            self._create()
        for ledger in world.ledgers.values():
            world.add(ledger)
            if rng.random() < 0.8:
                world.close(ledger)

    def _locations(self) -> list[str]:
        """The locations of bookies; an empty one is not in the rack map."""
        rng = self.rng
        return [f"/r{i}" for i in range(rng.choice((2, 2, 3, 4)))] + ([""] if rng.random() < 0.15 else [])

    def _near(self, bookie: str) -> list[str]:
        """The bookies that fail together with this one."""
        rack = self.world.bookies[bookie].rack
        return [other.id for other in self.world.bookies.values() if other.rack == rack]

    def _create(self) -> None:
        size, number = self.rng.choice((1, 2, 2, 3, 3, 4, 5)), self.world.next_ledger
        self.world.create(size, self.rng.randint(1, min(size, 3)), self.rng.random() < 0.6)
        self.own |= {number} & self.world.ledgers.keys()

    # Events of the cluster and its operators

    def happen(self) -> None:
        for _ in range(self.rng.randint(0, 3)):
            self.rng.choice(
                (
                    self._writer,
                    self._writer,
                    self._writer,
                    self._bookie,
                    self._bookie,
                    self._recovery,
                    self._operator,
                    self._eyes,
                )
            )()

    def _writer(self) -> None:
        rng, world = self.rng, self.world
        ledgers = [ledger for number, ledger in world.ledgers.items() if number in self.own]
        what = rng.random()
        if what < 0.2 or not ledgers:
            if len(ledgers) < 20:
                self._create()
            return
        ledger = rng.choice(ledgers)
        if what < 0.25:
            world.delete(ledger.id)
        elif what < 0.28 or ledger.unreadable:
            self._damage(ledger)
        elif not ledger.closed:
            ledger.busy = rng.random() < 0.8
            if ledger.busy:
                world.add(ledger)
            if ledger.busy and rng.random() < 0.3 and not ledger.closed:
                world.close(ledger)

    def _damage(self, ledger: Ledger) -> None:
        ledger.unreadable = not ledger.unreadable
        self.world.save(ledger)
        self.world.note(f"ledger {ledger.id} is {'un' * ledger.unreadable}readable")

    def _bookie(self) -> None:
        rng, world = self.rng, self.world
        bookie = rng.choice(list(world.bookies.values()))
        what = rng.random()
        if what < 0.08:
            for other in self._near(bookie.id):
                if world.up(other):
                    world.stop(other)
        elif what < 0.14 and len(world.bookies) < 10:
            world.start(f"b{len(world.bookies)}", rng.choice(self.racks))
        elif bookie.state == "down":
            if what < 0.2 and bookie.cookie and self._published(bookie.id):
                world.decommission(bookie.id)
            elif what < 0.75:
                world.start(bookie.id, process=rng.choice(("new", "same")))
        elif what < 0.3:
            state = "readonly" if bookie.state == "writable" else "writable"
            world.start(bookie.id, state=state, process="same", turned=True)
        elif what < 0.4:
            world.stop(bookie.id)
            world.start(bookie.id, process=rng.choice(("new", "same")))
        elif what < 0.75:
            world.stop(bookie.id)

    def _published(self, bookie: str) -> bool:
        """Whether a published topology contains the bookie. Ledgers with unpublished members are unknown."""
        bodies = self.log.bodies["topology"]
        return bool(bodies) and bookie.encode() in (bodies[-1][1] or b"")

    def _recovery(self) -> None:
        rng, world = self.rng, self.world
        what = rng.random()
        worker = rng.choice(world.workers)
        if what < 0.3:
            if worker.alive:
                world.kill_worker(worker)
            else:
                worker.alive = True
        elif what < 0.45:
            world.disabled = not world.disabled
        elif what < 0.55:
            world.moves_racks = not world.moves_racks
        elif what < 0.8 and world.ledgers:
            ledger = rng.choice(list(world.ledgers.values()))
            lost = tuple(sorted(b for b in ledger.members if not world.up(b)))
            if ledger.id not in world.marks or set(lost) - set(world.marks[ledger.id].replicas):
                world.mark(ledger.id, lost, world.now_ms - 7, rng.choice(("auditor", "operator")))

    def _operator(self) -> None:
        rng = self.rng
        name, value = rng.choice(
            (
                ("placement.mode", rng.choice(("enforce", "enforce", "approve", "observe"))),
                ("placement.paused", rng.random() < 0.3),
                ("placement.grace_s", rng.choice((0.0, 5.0))),
                ("placement.max_marks", rng.choice((0, 1, 3, 50))),
                ("placement.release_hold", rng.randint(0, 3)),
                ("placement.marks_per_s", rng.choice((0.5, 500.0))),
                ("placement.give_up_s", rng.choice((120.0, 1_800.0))),
            )
        )
        self._set(name, value)
        self._approve()

    def _set(self, name: str, value: object) -> None:
        text = json.dumps(value)
        record = {"name": name, "value": text, "at_ms": self.world.now_ms}
        self.log.append("config", name.encode(), record)
        self.world.note(f"{name} set to {text}")

    def _approve(self) -> None:
        """An operator approves all findings of the board."""
        placing, leader = self.placing, self.around.leader
        if placing is None or leader is None or placing.live.now.section(PlacementSettings).mode != "approve":
            return
        shown = {int(row["ledger"]): int(row["version"]) for row in placing.reconciler.board.findings}
        self.checkers.approved |= shown
        with self.around.crashes(leader), suppress(Retry):
            placing.reconciler.approve(shown)

    def _eyes(self) -> None:
        process = self.rng.choice(self.around.processes)
        placing: Placing | None = process.streams.get(self.name)
        if process.faults.cut:
            process.faults.cut = False
            if placing is not None:
                placing.eyes.connect()
        elif self.rng.random() < 0.5:
            process.faults.cut = True
            if placing is not None:
                placing.eyes.queue()
                placing.eyes.cut()
        if self.rng.random() < 0.04:
            self.around.lose_checkpoint()

    def end_faults(self) -> None:
        rng, world = self.rng, self.world
        world.disabled, world.moves_racks = False, True
        for worker in world.workers:
            worker.alive = True
        for number in [i for i, mark in world.marks.items() if "trueup" not in mark.authors]:
            world.unmark(number, "operator")
        for number in world.marks:
            # An unreadable ledger is never changed, so our mark would stay and count against the cap.
            if number in world.ledgers and world.ledgers[number].unreadable:
                self._damage(world.ledgers[number])
        for bookie in list(world.bookies.values()):
            if bookie.state == "down" and rng.random() < 0.4:
                world.start(bookie.id)
        mode = rng.choice(("enforce", "enforce", "approve", "observe"))
        for name, value in (
            ("mode", mode),
            ("paused", False),
            ("max_marks", rng.choice((3, 50))),
            ("marks_per_s", 500.0),
            ("release_hold", rng.choice((0, 99))),
        ):
            self._set(f"placement.{name}", value)
        if self.placing is not None and self.placing.eyes.lost_ms is not None:
            self.placing.eyes.connect()

    def calm(self) -> None:
        self._approve()

    def quiet(self) -> bool:
        """No work is left: no cluster writes, observations, marks of ours or feasible drift."""
        placing = self.placing
        if placing is None or placing.eyes.due or placing.eyes.events or self.checkpoint.begun:
            return False
        if not placing.reconciler.complete or self.checkers.attendance.missing:
            return False
        mode = placing.live.now.section(PlacementSettings).mode
        return mode == "observe" or not (self.checkers.todo() or self.checkers.ours())

    def ended(self) -> None:
        assert self.placing is not None, "it was quiet"
        board = self.placing.reconciler.board
        self.checkers.board(board.findings, board.marks)

    def counted(self) -> Mapping[str, int]:
        repaired = sum("repaired to" in line for line in self.world.log)
        return {"marks": self.checkers.marks_written, "repaired": repaired}

    def left(self) -> str:
        return f"{self.checkers.todo()} drift, marks of ours {self.checkers.ours()}"
