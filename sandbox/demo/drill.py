"""The rack drill: write, lose rack 2, restart it, lose rack 1, read everything.

The same steps run with and without Trueup. Without Trueup, BookKeeper runs with its defaults: the Auditor repairs lost
replicas, its placement check is disabled, and the workers do not repair placement. The time between the two losses is
the same in both runs.
"""

import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.demo.application import Trueup
from trueup.sandbox.demo.truth import Truth
from trueup.sandbox.demo.waiting import Say, machine, made, start_again, start_cluster, wait_for
from trueup.sandbox.writer import LedgerHandle, LedgerWriter
from trueup.state.common.counts import many
from trueup.state.common.errors import Retry, Unknown

ENTRIES = 20
SHAPES = ((2, 2), (2, 2), (2, 2), (3, 3), (4, 2))
OPEN_SHARE = 10  # one in this many ledgers is open when rack 2 is killed
QUIET_S = 1.0
TRIES = 12
FORGOTTEN_S = 45.0
"""Longer than a worker waits after two failures, which are possible while a rack is lost."""
SAY_EVERY_S = 2.0
SETTINGS = {
    # A worker waits this long after a repair without an adhering ensemble (5 s by default): with one rack left,
    # that is every repair.
    "rwRereplicateBackoffMs": 100
}


@dataclass(slots=True)
class DrillResult:
    """The result of one drill. Times are in seconds."""

    name: str
    closed: int = 0
    left_open: int = 0
    fragmented: int = 0
    entries: int = 0
    """The number of entries that were written to closed ledgers."""
    found_on_one_rack: int = 0
    still_on_one_rack: int = 0
    blocked: int = 0
    marks: int = 0
    repairs: int = 0
    time_to_safe_s: list[float] = field(default_factory=list)
    lost: int = 0
    """The number of lost entries of closed ledgers, see `LedgerWriter.verify`."""
    damaged: int = 0
    fenced: int = 0
    between_s: float = 0.0
    took_s: float = 0.0

    @property
    def safe_median_s(self) -> float | None:
        """Median time from drifted to true."""
        return statistics.median(self.time_to_safe_s) if self.time_to_safe_s else None


class Drill:
    """One drill on its own cluster. ``wait_s``: time between the two losses without Trueup."""

    def __init__(
        self, cluster: SandboxCluster, writer: LedgerWriter, truth: Truth, trueup: Trueup | None, say: Say
    ) -> None:
        self._cluster, self._writer, self._truth, self._trueup, self._say = cluster, writer, truth, trueup, say
        self._closed: dict[int, int] = {}
        self._writing: list[LedgerHandle] = []
        self._idle: list[LedgerHandle] = []
        self.result = DrillResult("with Trueup" if trueup else "without")

    def run(self, ledgers: int, wait_s: float) -> DrillResult:
        """Run all steps."""
        begun = time.monotonic()
        self._write(ledgers)
        self._lose_rack_2()
        self._get_rack_2_back()
        back = time.monotonic()
        if self._trueup is not None:
            self._blocked_one()
            self._let_trueup_work(self._trueup)
        else:
            self._say(f"waiting {wait_s:.0f} s for BookKeeper with its defaults")
            time.sleep(wait_s)
        self.result.between_s = time.monotonic() - back
        self.result.still_on_one_rack = len(self._truth.on_one_rack())
        self._lose_rack_1()
        self.result.took_s = time.monotonic() - begun
        return self.result

    def _write(self, ledgers: int) -> None:
        self._say(f"writing {many(ledgers, 'ledger')} of {ENTRIES} entries")
        for at in range(ledgers):
            ensemble, quorum = SHAPES[at % len(SHAPES)]
            if at % OPEN_SHARE == OPEN_SHARE - 1:
                handle = self._writer.create(2, 2, 2)
                self._writer.add(handle, ENTRIES // 2)
                (self._writing if len(self._writing) <= len(self._idle) else self._idle).append(handle)
            else:
                self._closed[self._writer.write(ensemble, quorum, quorum, ENTRIES)] = ENTRIES

    def _lose_rack_2(self) -> None:
        self._cluster.kill("/rack2")
        self._say("first loss: rack 2 is killed (SIGKILL)")
        for handle in self._writing:
            # An active writer replaces the lost bookie itself, with a second fragment. If its client gives up, the
            # ledger ends with what was acknowledged, as that of a broker, which goes on in a new one.
            try:
                self._writer.add(handle, ENTRIES - handle.entries)
            except Unknown as error:
                entries = many(handle.entries, "entry", "entries")
                self._say(f"  ledger {handle.ledger} ends after {entries}: {error.found}")
            self._writer.close(handle)
            self._closed[handle.ledger] = handle.entries
        self.result.fragmented = len(self._writing)
        self._wait("the bookies of rack 2 to be gone", lambda: self._truth.registered("/rack2") == 0)
        self._say("BookKeeper re-replicates onto rack 1, the only rack left")
        progress, shown = ChangePrinter(self._say), ""

        def replicated() -> bool:
            nonlocal shown
            left = len(self._truth.short_of("/rack2", 3))
            shown = f"{many(left, 'ledger')} with a member on the lost rack"
            self._look()
            progress(f"  {shown}", left)
            return not left

        try:
            wait_for("re-replication onto rack 1", replicated, self._say, lambda: shown, FORGOTTEN_S)
        except Retry:  # they keep that member, whose rack returns
            self._say(f"  no repair for {FORGOTTEN_S:.0f} s, so the drill goes on: {shown}; {machine()}")

    def _wait(self, what: str, condition: Callable[[], bool]) -> None:
        wait_for(what, condition, self._say, lambda: f"{self._truth.registered('/rack2')} registered")

    def _get_rack_2_back(self) -> None:
        start_again(self._cluster, "/rack2", self._say)
        self._wait("the bookies of rack 2 to be back", lambda: self._truth.registered("/rack2") == 3)
        self.result.found_on_one_rack = len(self._truth.on_one_rack())
        narrow = many(self.result.found_on_one_rack, "closed ledger")
        self._say(f"rack 2 is back: all replicas of {narrow} on one rack")

    def _blocked_one(self) -> None:
        """Write a ledger that two racks cannot hold: three members, two replicas. The two members in the same rack must
        be on rack 2; otherwise the next loss destroys the ledger that is expected to be blocked."""
        for _ in range(TRIES):
            ledger = self._writer.write(3, 2, 2, ENTRIES)
            if self._truth.racks(ledger).count("/rack2") == 2:
                self._closed[ledger] = ENTRIES
                return
            self._writer.delete(ledger)
        raise Unknown(f"an ensemble with two members on rack 2 in {TRIES} tries", "none", "run the demo again")

    def _let_trueup_work(self, trueup: Trueup) -> None:
        trueup.begin()
        try:
            self._wait_for_repairs(trueup)
        except Retry as late:  # what is left is counted
            self._say(str(late))
        for ledger, reason in sorted(trueup.blocked.items()):
            self._say(f"  ledger {ledger} is blocked and not marked: {reason}")
        for ledger in sorted(self._truth.on_one_rack() - set(trueup.blocked)):
            self._say(f"  ledger {ledger} is still on one rack: {trueup.story(ledger)}")
        done_by = Counter(action["outcome"] for action in trueup.actions())
        self.result.marks, self.result.repairs = done_by["ordered"], done_by["safe"]
        self.result.blocked = len(trueup.blocked)
        self.result.time_to_safe_s = [ms / 1000 for ms in trueup.safe_ms.values()]

    def _wait_for_repairs(self, trueup: Trueup) -> None:
        """Wait until for a while nothing is left to repair."""
        progress, shown, first, calm_s = ChangePrinter(self._say), "", True, 0.0

        def repaired() -> bool:
            nonlocal progress, shown, first, calm_s
            status, now_s = self._look(), time.monotonic()
            if status is None:
                calm_s = 0.0
                return False
            if first and status["counts"]["drifted"]:
                first = False
                self._print_order(trueup)
            shown = _line(status)
            progress(f"  {shown}", shown)
            if progress.still_s >= FORGOTTEN_S and status["marks"]["ours"]:
                self._restart_workers()
                progress = ChangePrinter(self._say)
            done = not status["counts"]["drifted"] and not status["marks"]["ours"]
            done = done and self._truth.on_one_rack() <= set(trueup.blocked)
            calm_s = (calm_s or now_s) if done else 0.0
            return done and now_s - calm_s >= QUIET_S

        wait_for("Trueup to repair what it can", repaired, self._say, lambda: shown)

    def _restart_workers(self) -> None:
        """Restart the AutoRecovery daemons, as an operator would. A daemon that takes a lock while it releases it loses
        track of the lock: `ZkLedgerUnderreplicationManager.releaseUnderreplicatedLedger` deletes the znode first and
        its own entry afterwards."""
        self._say("  no repair completed for a while: restarting the AutoRecovery daemons, which releases their locks")
        self._cluster.stop("autorecovery")
        start_again(self._cluster, "autorecovery", self._say)

    def _print_order(self, trueup: Trueup) -> None:
        for row in trueup.riskiest(3):
            copies, racks = many(row["copies"], "copy", "copies"), many(row["racks"], "rack")
            self._say(f"  highest risk: ledger {row['ledger']}, {copies} on {racks}")

    def _look(self) -> dict[str, Any] | None:
        return self._trueup.look() if self._trueup is not None else None

    def _lose_rack_1(self) -> None:
        self._cluster.kill("/rack1")
        self._say("second loss: rack 1 is killed (SIGKILL); every entry of every closed ledger is read")
        for ledger, entries in self._closed.items():
            readback = self._writer.verify(ledger, entries)
            self.result.entries += entries
            self.result.lost += len(readback.lost)
            self.result.damaged += len(readback.corrupt)
        self.result.closed, self.result.left_open = len(self._closed), len(self._idle)
        self.result.fenced = len(self._truth.not_open({handle.ledger for handle in self._idle}))


class ChangePrinter:
    """Prints changes with a minimum interval, and measures the time since the last change."""

    def __init__(self, say: Say) -> None:
        self._say, self._seen, self._pending = say, object(), False
        self._moved = self._printed_s = time.monotonic() - SAY_EVERY_S

    def __call__(self, text: str, state: object) -> None:
        """Print ``text`` if ``state`` has changed."""
        now = time.monotonic()
        if state != self._seen:
            self._seen, self._moved, self._pending = state, now, True
        if self._pending and now - self._printed_s >= SAY_EVERY_S:
            self._printed_s, self._pending = now, False
            self._say(text)

    @property
    def still_s(self) -> float:
        """Seconds without change."""
        return time.monotonic() - self._moved


def _line(status: dict[str, Any]) -> str:
    counts, marks = status["counts"], status["marks"]
    text = "  ".join(f"{verdict} {counts[verdict]}" for verdict in ("true", "drifted", "blocked"))
    return f"{text}  marks outstanding {marks['outstanding']}"


def drill(root: Path, with_trueup: bool, ledgers: int, wait_s: float, say: Say) -> DrillResult:
    """Run one drill on its own servers below ``root``."""
    racks = {"/rack1": 3, "/rack2": 3}
    with SandboxCluster(
        root / "cluster", racks, autorecovery=2, kafka=True, worker_repairs=with_trueup, settings=SETTINGS
    ) as cluster:
        say("starting ZooKeeper, six bookies in two racks and a Kafka broker")
        start_cluster(cluster, say, autorecovery=False)
        if not with_trueup:
            return _on(cluster, None, ledgers, wait_s, say)
        with Trueup(cluster, root / "trueup", say) as trueup:
            say("starting Trueup, which becomes the Auditor")
            trueup.wait_until("Trueup to hold the Auditor's vote", _holds_vote)
            return _on(cluster, trueup, ledgers, wait_s, say)


def _on(cluster: SandboxCluster, trueup: Trueup | None, ledgers: int, wait_s: float, say: Say) -> DrillResult:
    say("starting two AutoRecovery daemons")
    start_again(cluster, "autorecovery", say)
    writer = made("BookKeeper's client", lambda: LedgerWriter(cluster), say)
    try:
        with Truth(cluster) as truth:
            if trueup is not None:
                trueup.wait_until("Trueup to be ready", lambda status: status["ready"])
            return Drill(cluster, writer, truth, trueup, say).run(ledgers, wait_s)
    finally:
        writer.shutdown()


def _holds_vote(status: dict[str, Any]) -> bool:
    return any(source["name"] == "vote" and source["detail"] == "ours" for source in status["sources"])
