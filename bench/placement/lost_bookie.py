"""Time from the loss of a bookie until all of its ledgers are marked: BookKeeper's Auditor and Trueup, alternating on
one cluster.

Time is measured from the end of the bookie's registration to the last mark, by ZooKeeper's timestamps, so that the
observer adds no delay. Both are warm: each has already handled the loss of another bookie. Only one is active at a
time. The Auditor runs in the worker's process and is disabled by Trueup's vote.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.common.application import Application
from bench.common.measure import Failed, tell
from bench.common.rows import Row, less
from bench.placement.site import LIMIT_S, LOST, WARM, Loss, Site

TARGETS = {20_000: 5.0, 200_000: 25.0}


@dataclass(slots=True)
class Rounds:
    """Measurements at one size. ``index_s``: seconds of each build of the Auditor's bookie-to-ledgers index."""

    ledgers: int
    peer: list[Loss] = field(default_factory=list)
    ours: list[Loss] = field(default_factory=list)
    index_s: list[float] = field(default_factory=list)


def run(site: Site, ledgers: int, rounds: int) -> Rounds:
    """Measure the peer and Trueup alternately."""
    site.fill(ledgers)
    made = Rounds(ledgers)
    for number in range(1, rounds + 1):
        name = f"{ledgers:,} ledgers, round {number} of {rounds}"
        made.peer.append(auditor(site, made.index_s))
        tell(f"{name}: Auditor {_summary(made.peer[-1])}; its index {made.index_s[-1]:.2f} s")
        made.ours.append(trueup(site))
        tell(f"{name}: Trueup  {_summary(made.ours[-1])}")
    return made


def auditor(site: Site, index_s: list[float]) -> Loss:
    """One round of BookKeeper's Auditor. Appends the duration of its index to ``index_s``."""
    site.cluster.start("autorecovery")
    tell(f"warming up: {_summary(site.lose(WARM, site.daemon))}")
    _settle(site, WARM)
    loss = _indexed(site, LOST, index_s)
    site.cluster.stop("autorecovery")
    _restore(site, LOST)
    return loss


def indexes(site: Site, rounds: int) -> list[float]:
    """Seconds in which a warm Auditor reads all metadata into its index, for each lost bookie."""
    index_s: list[float] = []
    site.cluster.start("autorecovery")
    for _ in range(rounds + 1):
        _indexed(site, WARM, index_s)
        _settle(site, WARM)
    site.cluster.stop("autorecovery")
    return index_s[1:]


def _indexed(site: Site, lost: int, index_s: list[float]) -> Loss:
    before_s, before = site.index_s()
    loss = site.lose(lost, site.daemon)
    after_s, after = site.index_s()
    if after == before:
        raise Failed("the Auditor's metrics tell no time of its index")
    index_s.append((after_s - before_s) / (after - before))
    return loss


def trueup(site: Site) -> Loss:
    """One round of Trueup."""
    with Application(site) as application:
        site.cluster.start("autorecovery")
        application.wait_quiet(0, LIMIT_S)
        tell("Trueup is up, the Auditor parked")
        tell(f"warming up: {_summary(site.lose(WARM, application.pid))}")
        application.wait_quiet(len(site.holding(WARM)), LIMIT_S)
        site.bring_back(WARM)
        application.wait_quiet(0, LIMIT_S)
        tell("Trueup has withdrawn these marks")
        loss = site.lose(LOST, application.pid)
        site.cluster.kill("autorecovery")  # its Auditor would start when Trueup releases the vote
    _restore(site, LOST)
    return loss


def _settle(site: Site, bookie: int) -> None:
    """Restart a bookie and remove all marks while the Auditor runs."""
    site.bring_back(bookie)
    site.wait_audited()
    site.znodes.clear_marks()


def _restore(site: Site, bookie: int) -> None:
    site.znodes.clear_marks()
    site.bring_back(bookie)


def _summary(loss: Loss) -> str:
    return (
        f"first mark {loss.first_s:.2f} s, last of {loss.marks:,} {loss.last_s:.2f} s; "
        f"CPU {loss.cpu_s:.1f} s, ZooKeeper's {loss.zookeeper_cpu_s:.1f} s"
    )


def rows(made: Rounds) -> list[Row]:
    """The rows of one size."""
    size = f"{made.ledgers:,} ledgers"
    what = f"Bookie lost to its {made.ours[0].marks:,} ledgers marked, {size}"
    return [
        less(what, "s", _all(made.peer, "last_s"), _all(made.ours, "last_s"), TARGETS.get(made.ledgers, 0.0)),
        less(f"  to the first mark, {size}", "s", _all(made.peer, "first_s"), _all(made.ours, "first_s")),
        less(f"  CPU of Auditor or Trueup, {size}", "s", _all(made.peer, "cpu_s"), _all(made.ours, "cpu_s")),
        less(
            f"  CPU of ZooKeeper, {size}", "s", _all(made.peer, "zookeeper_cpu_s"), _all(made.ours, "zookeeper_cpu_s")
        ),
    ]


def _all(losses: Sequence[Loss], name: str) -> list[float]:
    return [getattr(loss, name) for loss in losses]
