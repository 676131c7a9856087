"""The drill itself: write, lose rack 2, get it back, lose rack 1, read everything back.

The same steps run with Trueup and without it; only what happens between the two losses differs.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from connectors.sandbox.cluster import Cluster
from connectors.sandbox.processes import wait_until
from connectors.sandbox.writer import Handle, Writer
from state.errors import Unknown
from streams.demo.application import Trueup
from streams.demo.truth import Truth

Say = Callable[[str], None]
ENTRIES = 20
SHAPES = ((2, 2), (2, 2), (2, 2), (3, 3), (4, 2))
OPEN_SHARE = 10  # one ledger in so many is open when rack 2 dies
QUIET_S = 2.0
TRIES = 12


@dataclass(slots=True)
class Result:
    """What one drill came to. ``entries`` and ``lost`` count those of closed ledgers; times in seconds."""

    name: str
    closed: int = 0
    left_open: int = 0
    fragmented: int = 0
    entries: int = 0
    found_on_one_rack: int = 0
    still_on_one_rack: int = 0
    blocked: int = 0
    marks: int = 0
    repairs: int = 0
    time_to_safe_s: list[float] = field(default_factory=list)
    lost: int = 0
    damaged: int = 0
    fenced: int = 0
    took_s: float = 0.0

    @property
    def safe_median_s(self) -> float | None:
        """Median time from drifted to true."""
        return statistics.median(self.time_to_safe_s) if self.time_to_safe_s else None


class Drill:
    """One run on a cluster of its own."""

    def __init__(
        self, cluster: Cluster, writer: Writer, truth: Truth, trueup: Trueup | None, ledgers: int, say: Say
    ) -> None:
        self._cluster, self._writer, self._truth, self._trueup, self._say = cluster, writer, truth, trueup, say
        self._count = ledgers
        self._closed: dict[int, int] = {}
        self._writing: list[Handle] = []
        self._idle: list[Handle] = []
        self.result = Result("with Trueup" if trueup else "without")

    def run(self) -> Result:
        """All of it."""
        begun = time.monotonic()
        self._write()
        self._lose_rack_2()
        self._get_rack_2_back()
        self._lose_rack_1()
        self.result.took_s = time.monotonic() - begun
        return self.result

    def _write(self) -> None:
        self._say(f"writing {self._count} ledgers of {ENTRIES} entries")
        for at in range(self._count):
            ensemble, quorum = SHAPES[at % len(SHAPES)]
            if at % OPEN_SHARE == OPEN_SHARE - 1:
                handle = self._writer.create(2, 2, 2)
                self._writer.add(handle, ENTRIES // 2)
                (self._writing if len(self._writing) <= len(self._idle) else self._idle).append(handle)
            else:
                self._closed[self._writer.write(ensemble, quorum, quorum, ENTRIES)] = ENTRIES

    def _lose_rack_2(self) -> None:
        self._cluster.kill("/rack2")
        self._say("drill one: rack 2 is killed (SIGKILL)")
        for handle in self._writing:
            # A busy writer replaces the lost bookie itself: a second fragment.
            self._writer.add(handle, ENTRIES - handle.entries)
            self._writer.close(handle)
            self._closed[handle.ledger] = ENTRIES
        self.result.fragmented = len(self._writing)
        wait_until(lambda: self._truth.registered("/rack2") == 0, 30, "the bookies of rack 2 to be gone")
        self._say("copies are made up to strength on rack 1, because best effort is all BookKeeper has")
        self._until_quiet(lambda: len(self._truth.with_member_on("/rack2", self._refillable())), 120)

    def _refillable(self) -> set[int]:
        """Closed ledgers that three bookies are enough for."""
        rows = self._truth.ledgers()
        return {
            int(i) for i, size in zip(rows.ledger, rows.ensemble, strict=True) if size <= 3 and int(i) in self._closed
        }

    def _until_quiet(self, left: Callable[[], int], timeout_s: float) -> None:
        """Wait until nothing is left, or until nothing has moved for a while."""
        deadline, last, since = time.monotonic() + timeout_s, -1, time.monotonic()
        while (now := left()) and time.monotonic() < deadline:
            self._look()
            if now != last:
                last, since = now, time.monotonic()
                self._say(f"  {now} ledgers still have a member on the dead rack")
            elif time.monotonic() - since > 30:
                break
            time.sleep(0.25)

    def _get_rack_2_back(self) -> None:
        self._cluster.start("/rack2")
        wait_until(lambda: self._truth.registered("/rack2") == 3, 30, "the bookies of rack 2 to be back")
        self.result.found_on_one_rack = len(self._truth.on_one_rack())
        self._say(f"rack 2 is back: {self.result.found_on_one_rack} closed ledgers live on one rack alone")
        if self._trueup is not None:
            self._blocked_one()
            self._let_trueup_work(self._trueup)
        self.result.still_on_one_rack = len(self._truth.on_one_rack())

    def _blocked_one(self) -> None:
        """A ledger that no two racks can hold: three members, two copies. The two that share a rack are to be on
        rack 2, or the next loss would prove what is shown as blocked."""
        for _ in range(TRIES):
            ledger = self._writer.write(3, 2, 2, ENTRIES)
            if self._truth.racks(ledger).count("/rack2") == 2:
                self._closed[ledger] = ENTRIES
                return
            self._writer.delete(ledger)
        raise Unknown(f"an ensemble with two members on rack 2 in {TRIES} tries", "none", "run the demo again")

    def _let_trueup_work(self, trueup: Trueup) -> None:
        def settled() -> bool:
            status = self._look()
            return status is not None and status["counts"]["drifted"] == 0 and not status["marks"]["ours"]

        deadline, shown, quiet_since = time.monotonic() + 150, "", 0.0
        while time.monotonic() < deadline:
            if settled() and self._truth.on_one_rack() <= set(trueup.blocked):
                quiet_since = quiet_since or time.monotonic()
                if time.monotonic() - quiet_since > QUIET_S:
                    break
            else:
                quiet_since = 0.0
            shown = self._show(shown)
            time.sleep(0.25)
        for ledger, reason in sorted(trueup.blocked.items()):
            self._say(f"  ledger {ledger} is blocked, and never marked: {reason}")
        done = trueup.actions()
        self.result.marks = sum(action["outcome"] == "ordered" for action in done)
        self.result.repairs = sum(action["outcome"] == "safe" for action in done)
        self.result.blocked = len(trueup.blocked)
        self.result.time_to_safe_s = [ms / 1000 for ms in trueup.safe_ms.values()]

    def _look(self) -> dict[str, object] | None:
        return self._trueup.look() if self._trueup is not None else None

    def _show(self, shown: str) -> str:
        status = self._look()
        if status is None:
            return shown
        counts, marks = status["counts"], status["marks"]
        text = (
            f"  true {counts['true']}  drifted {counts['drifted']}  blocked {counts['blocked']}  "  # type: ignore[index]
            f"marks outstanding {marks['outstanding']}"  # type: ignore[index]
        )
        if text != shown:
            self._say(text)
        return text

    def _lose_rack_1(self) -> None:
        self._cluster.kill("/rack1")
        self._say("drill two: rack 1 is killed; every entry of every closed ledger is read back")
        for ledger, entries in self._closed.items():
            found = self._writer.verify(ledger, entries)
            self.result.entries += entries
            self.result.lost += len(found.lost)
            self.result.damaged += len(found.corrupt)
        self.result.closed, self.result.left_open = len(self._closed), len(self._idle)
        self.result.fenced = self._fenced()

    def _fenced(self) -> int:
        """Ledgers left open that somebody closed under their writer."""
        rows = self._truth.ledgers()
        state = dict(zip(rows.ledger.tolist(), rows.state.tolist(), strict=True))
        return sum(state[handle.ledger] != 1 for handle in self._idle)


def drill(root: Path, with_trueup: bool, ledgers: int, say: Say) -> Result:
    """Run one drill on servers of its own below ``root``."""
    cluster = Cluster(root / "cluster", {"/rack1": 3, "/rack2": 3}, autorecovery=2, kafka=True)
    with cluster:
        say("starting ZooKeeper, six bookies in two racks and a Kafka broker")
        cluster.up(autorecovery=False)
        if not with_trueup:
            return _on(cluster, None, ledgers, say)
        with Trueup(cluster, root / "trueup") as trueup:
            say("starting Trueup, which takes the Auditor's place")
            trueup.wait_until("Trueup to hold the Auditor's vote", _holds_vote)
            return _on(cluster, trueup, ledgers, say)


def _on(cluster: Cluster, trueup: Trueup | None, ledgers: int, say: Say) -> Result:
    say("starting two AutoRecovery daemons")
    cluster.start("autorecovery")
    writer = Writer(cluster)
    try:
        with Truth(cluster) as truth:
            made = Drill(cluster, writer, truth, trueup, ledgers, say)
            if trueup is not None:
                trueup.wait_until("Trueup to have seen the whole cluster", lambda status: status["ready"])
            return made.run()
    finally:
        writer.shutdown()


def _holds_vote(status: dict[str, object]) -> bool:
    sources = status["sources"]
    assert isinstance(sources, list)
    return any(source["name"] == "vote" and source["detail"] == "ours" for source in sources)
