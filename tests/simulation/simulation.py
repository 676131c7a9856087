"""One run: a cluster generated from a seed, a period with faults, then one without; checked after every step."""

from contextlib import suppress
from dataclasses import dataclass
from random import Random

from tests.simulation.checkers import Checkers, Violation
from tests.simulation.faults import Crash, Faults
from tests.simulation.model import COLLECT_MS, Ledger, World
from tests.simulation.surroundings import Eyes, Hands, Topics
from tests.simulation.trueup import Application, Checkpoint, Parts
from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.common.errors import Retry
from trueup.state.placement.settings import PLACEMENT, PlacementSettings
from trueup.state.settings.settings import ClusterSettings, Settings
from trueup.streams.journal.codec import encode

STALE_MS = (30_000, 120_000)
QUIET_STEPS = 500
LONGEST_STEP_MS = 1_800_000


@dataclass(frozen=True)
class Outcome:
    """Statistics of a run, to verify that it was not empty."""

    seed: int
    steps: int
    crashes: int
    marks: int
    repaired: int


class Simulation:
    """The state of one seed."""

    def __init__(self, seed: int, parts: Parts | None = None) -> None:
        self.seed, self.rng = seed, Random(seed)
        rng = self.rng
        self.world = World(rng, rng.choice((1, 2, 2, 2, 2, 3)), rng.random() < 0.1)
        self.faults = Faults(rng)
        self.checkers = Checkers(self.world)
        self.topics = Topics(self.faults, self.checkers)
        self.eyes = Eyes(self.world, self.faults, self.topics, self.checkers)
        self.hands = Hands(self.world, self.faults, self.eyes, self.checkers, rng.choice(STALE_MS))
        self.checkpoint = Checkpoint()
        self.parts = parts or Parts()
        self.settings = Settings(ClusterSettings("none:0"), sections={PLACEMENT: self._policy()})
        self.application: Application | None = None
        self.steps = self.crashes = 0
        self._populate()

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
        racks = [f"/r{i}" for i in range(rng.choice((2, 2, 3, 4)))] + ([""] if rng.random() < 0.15 else [])
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

    def _create(self) -> None:
        size = self.rng.choice((1, 2, 2, 3, 3, 4, 5))
        self.world.create(size, self.rng.randint(1, min(size, 3)), self.rng.random() < 0.6)

    def run(self) -> Outcome:
        """Raises `Violation`."""
        for _ in range(self.rng.randint(15, 40)):
            self._happen()
            self.faults.stir(self.world.now_ms)
            self._advance(self.rng.choice((50, 500, 2_000, 8_000)))
        self._end_faults()
        self._settle()
        repaired = sum("repaired to" in line for line in self.world.log)
        return Outcome(self.seed, self.steps, self.crashes, self.checkers.marks_written, repaired)

    # Events of the cluster and its operators

    def _happen(self) -> None:
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
        ledgers = list(world.ledgers.values())
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
            for other in list(world.bookies.values()):
                if other.state != "down" and other.rack == bookie.rack:
                    world.stop(other.id)
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
        bodies = self.topics.bodies["topology"]
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
        text = str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)
        record = {"name": name, "value": text, "at_ms": self.world.now_ms}
        self.topics.bodies["config"].append((name.encode(), encode("config", record)))
        self.world.note(f"{name} set to {text}")

    def _approve(self) -> None:
        """An operator approves all findings of the board."""
        application = self.application
        if application is None or application.live.now.section(PlacementSettings).mode != "approve":
            return
        shown = {int(row["ledger"]): int(row["version"]) for row in application.reconciler.board.findings}
        self.checkers.approved |= shown
        with self._crashes(), suppress(Retry):
            application.reconciler.approve(shown)

    def _eyes(self) -> None:
        if self.faults.cut:
            self.faults.cut = False
            if self.application is not None:
                self.eyes.connect()
        elif self.rng.random() < 0.5:
            self.faults.cut = True
            self.eyes.queue()
            self.eyes.cut()
        if self.rng.random() < 0.04:
            self._lose_checkpoint()

    def _lose_checkpoint(self) -> None:
        """Rebuild the view from topics that may contain only the newest record of each key."""
        self._crashed()
        self.world.note("the checkpoint is lost")
        self.checkpoint = Checkpoint()
        ledgers = sorted(self.topics.ledgers, key=lambda row: int(row.mzxid[0]))
        self.topics.ledgers = list({int(row.ledger[0]): row for row in ledgers}.values())
        self.checkers.forgotten()

    # Time

    def _advance(self, ms: int) -> None:
        self.steps += 1
        self.world.advance(self.world.now_ms + ms)
        self.checkers.step()
        self.eyes.queue()
        with self._crashes():
            if self.application is None:
                self.checkers.restarted()
                self.application = Application(
                    self.settings,
                    self.topics,
                    self.checkpoint,
                    self.eyes,
                    self.hands,
                    self.faults,
                    self.checkers,
                    self.parts,
                    self.clock,
                )
            self.application.step()

    def clock(self) -> int:
        return self.faults.clock(self.world.now_ms)

    def _crashes(self) -> "_Crashes":
        return _Crashes(self)

    def _crashed(self) -> None:
        self.application = None
        self.eyes.queue()
        self.eyes.cut()
        self.crashes += 1
        self.world.note("Trueup crashed")

    # The end

    def _end_faults(self) -> None:
        rng, world = self.rng, self.world
        self.faults.end(world.now_ms)
        world.note("the faults are over")
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
        if self.application is not None and self.eyes.lost_ms is not None:
            self.eyes.connect()

    def _settle(self) -> None:
        """Within a bounded time no work is left, and the board shows the true state."""
        wait_ms, quiet = 500, 0
        for _ in range(QUIET_STEPS):
            self._advance(wait_ms)
            self._approve()
            if self._quiet():
                quiet += 1
                if quiet == 3:
                    break
            else:
                quiet = 0
            wait_ms = min(max(int(wait_ms * 1.2), 15_000 * quiet), LONGEST_STEP_MS)
        else:
            raise Violation(f"not quiet: {self.checkers.todo()} drift, marks of ours {self.checkers.ours()}")
        assert self.application is not None
        board = self.application.reconciler.board
        self.checkers.board(board.findings, board.marks)

    def _quiet(self) -> bool:
        """No work is left: no cluster writes, observations, marks of ours or feasible drift."""
        application = self.application
        waiting = self.eyes.due or self.world.touched or application is None or self.checkpoint.begun
        if waiting or not application.reconciler.complete or self._absence_unsettled():
            return False
        mode = application.live.now.section(PlacementSettings).mode
        return mode == "observe" or not (self.checkers.todo() or self.checkers.ours())

    def _absence_unsettled(self) -> bool:
        return bool(self.checkers.attendance.missing)


class _Crashes:
    """Ends the application at a planned crash."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        if kind is Crash:
            self.simulation._crashed()
        return kind is Crash


def simulate(seed: int, parts: Parts | None = None) -> Outcome:
    """Run one seed. Raises `Violation` with the last events as its notes."""
    simulation = Simulation(seed, parts)
    try:
        return simulation.run()
    except Exception as error:
        error.add_note(trace(simulation))
        raise


def trace(simulation: Simulation, lines: int = 40) -> str:
    return "\n".join(
        [
            f"seed {simulation.seed}; repeat with: python -m tests.simulation --seed {simulation.seed} --verbose",
            *simulation.world.log[-lines:],
        ]
    )


__all__ = ["LedgerState", "Outcome", "Simulation", "simulate", "trace"]
