"""Placement that is repaired by copies: what happens to the cluster, and what operators wish."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.simulation.copy_checkers import CopyCheckers
from tests.simulation.copy_world import SESSION_MS, CopyWorld
from tests.simulation.copying import SimulatedCopies
from tests.simulation.instances import Leader
from tests.simulation.placement_part import PlacementPart
from tests.simulation.placing import Placing
from tests.simulation.surroundings import Eyes, Hands
from trueup.state.bookkeeper.observations import LedgerRecord
from trueup.state.placement.settings import PlacementSettings

HALTS = 0.3
"""The share of steps with copies in which the process is stopped."""


class CopyPlacing(Placing):
    """Placement with copies in one process that leads."""

    def __init__(self, *given: Any, copies: SimulatedCopies) -> None:
        self.copies = copies
        super().__init__(*given, copies)

    def close(self) -> None:
        super().close()
        self.copies.kill()

    def step(self) -> None:
        super().step()
        self.copies.look()
        # Most likely before the metadata change: nothing else of a copy needs a leader.
        self.faults.halts |= self.faults.happens(HALTS) and bool(self.copies.running)
        self.copies.step(calm=not self.faults.on)


class CopyHands(Hands):
    """Also reads the metadata of single ledgers."""

    world: CopyWorld

    def record(self, number: int) -> LedgerRecord | None:
        self.faults.acting()
        ledger = self.world.ledgers.get(number)
        return None if ledger is None or ledger.unreadable else self.world.record(ledger)


class CopyPart(PlacementPart):
    """Trueup copies ledgers, or lets workers repair them, as operators switch. They also drain bookies."""

    world: CopyWorld
    checkers: CopyCheckers
    watch = CopyCheckers
    acts = CopyHands

    def _policy(self) -> PlacementSettings:
        rng, policy = self.rng, super()._policy()
        mode = "enforce" if rng.random() < 0.5 else policy.mode
        return replace(policy, copy_enabled=True, executor="copy" if rng.random() < 0.9 else "workers", mode=mode)

    def _populate(self) -> None:
        super()._populate()
        self._fill()
        self.every, self.stopped_ms = list[SimulatedCopies](), dict[int, int]()

    def _placing(self, leader: Leader, eyes: Eyes, hands: Hands, current: Any) -> Placing:
        copies = SimulatedCopies(self.world, leader, current)
        self.every = [*(some for some in self.every if not some.idle), copies]
        return CopyPlacing(leader, eyes, hands, self.checkpoint, current, self.parts, copies=copies)

    @property
    def copies(self) -> SimulatedCopies | None:
        """Those of the present leader."""
        return getattr(self.placing, "copies", None)

    def happen(self) -> None:
        super().happen()
        rng, world, what = self.rng, self.world, self.rng.random()
        if what < 0.2:
            world.damage()
        elif what < 0.3 and world.ledgers:
            world.recover(rng.choice(list(world.ledgers.values())))
        elif what < 0.4:
            self._fill()
        elif what < 0.5 and self.copies is not None:
            self.copies.expire()
        elif what < 0.58:
            self._set("placement.executor", rng.choice(("copy", "copy", "copy", "workers")))
        elif what < 0.7:
            self._drain(rng.sample(sorted(world.bookies), rng.choice((0, 1, 1, 2))))

    def _fill(self) -> None:
        """Disks fill up, or operators delete data."""
        for bookie in self.world.bookies:
            self.world.used[bookie] = self.rng.choice((0.1, 0.5, 0.8, 0.8, 0.95))

    def _drain(self, bookies: Sequence[str]) -> None:
        self._set("placement.drain", list(bookies))

    def advanced(self) -> None:
        """Tasks of dead processes run on. The session of a process that is stopped ends."""
        super().advanced()
        for process in self.around.processes:
            stream = process.streams.get(self.name)
            if not process.stopped or stream is None:
                self.stopped_ms.pop(process.number, None)
            elif self.world.now_ms - self.stopped_ms.setdefault(process.number, self.world.now_ms) >= SESSION_MS[1]:
                stream.copies.expire()
        for copies in self.every:
            if copies.dead:
                copies.step()

    def end_faults(self) -> None:
        super().end_faults()
        self.world.careless = 0.0
        self._drain([])
        self._set("placement.executor", self.rng.choice(("copy", "copy", "workers")))

    def quiet(self) -> bool:
        return super().quiet() and all(copies.idle for copies in self.every)

    def ended(self) -> None:
        super().ended()
        self.checkers.stored_everywhere()

    def counted(self) -> Mapping[str, int]:
        return {**super().counted(), "recopied": self.checkers.copies}
