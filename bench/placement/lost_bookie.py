"""Bookie lost to all of its ledgers marked: BookKeeper's Auditor beside Trueup, in turns on one cluster.

Time runs from the end of the bookie's registration to the last mark, as ZooKeeper's own clock stamped it, so that
nobody pays for being watched. Both are warm: each just handled the loss of another bookie. While one is measured the
other is down (the Auditor, in the same process as the worker, is parked by Trueup's vote).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.common.application import Application
from bench.common.measure import Failed, tell
from bench.common.rows import Row, less
from bench.placement.site import LIMIT_S, LOST, WARM, Loss, Site

TARGETS = {20_000: 5.0, 200_000: 15.0}


@dataclass(slots=True)
class Rounds:
    """What was measured at one size. ``index_s``: the Auditor's bookie-to-ledgers index, seconds each."""

    ledgers: int
    peer: list[Loss] = field(default_factory=list)
    ours: list[Loss] = field(default_factory=list)
    index_s: list[float] = field(default_factory=list)


def run(site: Site, ledgers: int, rounds: int) -> Rounds:
    """Alternate peer and ours."""
    site.fill(ledgers)
    made = Rounds(ledgers)
    for number in range(1, rounds + 1):
        name = f"{ledgers:,} ledgers, round {number} of {rounds}"
        made.peer.append(auditor(site, made.index_s))
        tell(f"{name}: Auditor {_said(made.peer[-1])}; its index {made.index_s[-1]:.2f} s")
        made.ours.append(trueup(site))
        tell(f"{name}: Trueup  {_said(made.ours[-1])}")
    return made


def auditor(site: Site, index_s: list[float]) -> Loss:
    """One round of BookKeeper's own; how long its index took is put to ``index_s``."""
    site.cluster.start("autorecovery")
    tell(f"warming up: {_said(site.lose(WARM, site.daemon))}")
    _settle(site, WARM)
    loss = _indexed(site, LOST, index_s)
    site.cluster.stop("autorecovery")
    _restore(site, LOST)
    return loss


def indexes(site: Site, rounds: int) -> list[float]:
    """Seconds that a warm Auditor takes to read all metadata into its index, each time a bookie is lost."""
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
    """One round of ours."""
    with Application(site) as application:
        site.cluster.start("autorecovery")
        application.wait_quiet(0, LIMIT_S)
        tell("Trueup is up, the Auditor parked")
        tell(f"warming up: {_said(site.lose(WARM, application.pid))}")
        application.wait_quiet(len(site.holding(WARM)), LIMIT_S)
        site.bring_back(WARM)
        application.wait_quiet(0, LIMIT_S)
        tell("Trueup has withdrawn these marks")
        loss = site.lose(LOST, application.pid)
        site.cluster.kill("autorecovery")  # its Auditor would begin once Trueup gives the vote back
    _restore(site, LOST)
    return loss


def _settle(site: Site, bookie: int) -> None:
    """Have a bookie back, and no marks, under an Auditor that goes on."""
    site.bring_back(bookie)
    site.wait_audited()
    site.znodes.clear_marks()


def _restore(site: Site, bookie: int) -> None:
    site.znodes.clear_marks()
    site.bring_back(bookie)


def _said(loss: Loss) -> str:
    return (
        f"first mark {loss.first_s:.2f} s, last of {loss.marks:,} {loss.last_s:.2f} s; "
        f"CPU {loss.cpu_s:.1f} s, ZooKeeper's {loss.zookeeper_cpu_s:.1f} s"
    )


def rows(made: Rounds) -> list[Row]:
    """The figures of one size."""
    size = f"{made.ledgers:,} ledgers"
    what = f"Bookie lost to its {made.ours[0].marks:,} ledgers marked, {size}"
    return [
        less(what, "s", _all(made.peer, "last_s"), _all(made.ours, "last_s"), TARGETS.get(made.ledgers, 0.0)),
        less(f"  to the first mark, {size}", "s", _all(made.peer, "first_s"), _all(made.ours, "first_s")),
        less(f"  CPU of Auditor or Trueup, {size}", "s", _all(made.peer, "cpu_s"), _all(made.ours, "cpu_s")),
        less(f"  CPU of ZooKeeper, {size}", "s", _all(made.peer, "zookeeper_cpu_s"),
             _all(made.ours, "zookeeper_cpu_s")),
    ]  # fmt: skip


def _all(losses: Sequence[Loss], name: str) -> list[float]:
    return [getattr(loss, name) for loss in losses]
