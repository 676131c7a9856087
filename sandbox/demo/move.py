"""A shop moves from a cluster that is killed to another one: the steps, the comparison and the last screen of demos.

Replication is asynchronous: orders that the killed cluster acknowledged last exist only there until it returns. They
are copied then, late but not lost, and counted.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table

from trueup.sandbox.demo.application import DemoApplication
from trueup.sandbox.demo.shop import GROUP, PARTITIONS, Billing, Log, Orders, ShopSite, disorder, keys, skipped
from trueup.sandbox.demo.waiting import Say, wait_for
from trueup.state.common.counts import many
from trueup.state.common.errors import Retry

TRAFFIC_S = 10.0
STILL_S = 3.0
SOME = 10
LOOK_S = 0.25
BARS = " ▁▂▃▄▅▆▇█"


@dataclass(slots=True)
class Result:
    """The result of a move. Times are in seconds; all other numbers are numbers of records."""

    acknowledged: int = 0
    unanswered: int = 0
    late: int = 0
    lost: int = 0
    duplicates: int = 0
    redelivered: int = 0
    disorder: int = 0
    missed: int = 0
    again: int = 0
    again_s: float = 0.0
    loops: int = 0
    moving: int = 0
    unread: int = 0
    moved_s: float = 0.0
    level_s: float = 0.0
    took_s: float = 0.0
    wrong: list[str] = field(default_factory=list)
    lag: list[int] = field(default_factory=list)
    """The number of records by which all links together were behind, at each query of the status."""

    @property
    def right(self) -> bool:
        """No record is lost, duplicated, out of order, skipped by the readers, or copied in a loop."""
        return not (any(self.bad().values()) or self.wrong)

    def bad(self) -> dict[str, int]:
        """Counts that must be 0, by description."""
        return {
            "acknowledged orders that a cluster lacks": self.lost,
            "duplicate orders": self.duplicates,
            "orders out of order": self.disorder,
            "orders skipped by the group during failover": self.missed,
            "orders never read by the group": self.unread,
            "records copied in a loop": self.moving,
        }


class MoveDemo:
    """The steps from the cluster ``here``, which is killed, to ``there``, with a running application. All ``sites``
    must have every order at the end. ``result`` is filled in."""

    def __init__(
        self,
        sites: Sequence[ShopSite],
        orders: Orders,
        billing: Billing,
        trueup: DemoApplication,
        say: Say,
        result: Result,
        burst: int,
    ) -> None:
        self.sites, (self.here, self.there, *_) = sites, sites
        self.orders, self.billing, self.trueup, self.say, self.result = orders, billing, trueup, say, result
        self._burst = burst
        self.complete: dict[str, set[str]] = {}
        self._links: dict[str, dict[str, Any]] = {}

    def run(self) -> None:
        """Run all steps."""
        begun = time.monotonic()
        try:
            self.steps()
        finally:
            self.orders.end()
            self.billing.end()
        self.result.took_s = time.monotonic() - begun

    def steps(self) -> None:
        """Move, return, and compare."""
        self._shop_here()
        self._here_dies()
        self._here_returns()
        self.billing.end()
        self.compare()
        self._judge_readers()

    def _shop_here(self) -> None:
        here = self.here
        self.say(f"writing {self.orders.per_s:g} orders per second to {here.name}; the group {GROUP} reads them there")
        self.orders.begin(here.name, here.address)
        self.billing.begin(here.name, here.address, fresh=True)
        self.watch(TRAFFIC_S)
        self.wait(f"the group's offsets to be translated to {self.there.name}", lambda: min(self.there.committed()) > 0)
        self.watch(TRAFFIC_S / 2)

    def _here_dies(self) -> None:
        here, there, before = self.here, self.there, self.orders.count
        self.orders.burst(self._burst)
        half = before + self._burst // 2
        self.wait("half of a burst to be acknowledged", lambda: self.orders.count >= half)
        here.kill()
        died = time.monotonic()
        self.say(f"{here.name} is killed (SIGKILL) during a burst of {self._burst:,} orders")
        self.orders.end()
        self.billing.end()
        self.orders.begin(there.name, there.address)
        self.billing.begin(there.name, there.address, fresh=False)
        self.wait(f"the group to read at {there.name}", lambda: len(self.billing.first[there.name]) == PARTITIONS)
        self.result.moved_s = time.monotonic() - died
        self.say(f"writers and readers continue on {there.name}, {self.result.moved_s:.1f} s after the kill")
        self.result.late = len(self.orders.acknowledged[here.name] - keys(there.log()))
        self.say(f"{many(self.result.late, 'order')} acknowledged by {here.name} and not yet on {there.name}")
        self.watch(TRAFFIC_S)

    def _here_returns(self) -> None:
        here, back = self.here, time.monotonic()
        here.up()
        self.say(f"{here.name} is back; links copy the missing orders in both directions")
        self.watch(TRAFFIC_S / 2)
        self.orders.end()
        acknowledged = self.orders.wanted
        self.wait("every cluster to have every order", lambda: self.have(acknowledged))
        self.result.level_s = time.monotonic() - back
        self.say(f"every cluster has every order, {self.result.level_s:.1f} s after {here.name} was started")
        try:
            self.wait("the group to have read every order", lambda: acknowledged <= self.billing.read.keys())
        except Retry as error:  # what it did not read is counted
            self.result.wrong.append(str(error))

    def have(self, orders: set[str]) -> bool:
        """Whether all sites have these orders. One that has them is not read again."""
        for site in self.sites:
            if self.complete.get(site.name) != orders:
                if not orders <= keys(site.log()):
                    return False
                self.complete[site.name] = orders
        return True

    def compare(self) -> list[Log]:
        """Compare all logs, twice with some seconds in between: no more records may arrive. Returns the logs."""
        first = [site.ends() for site in self.sites]
        time.sleep(STILL_S)
        logs = [site.log() for site in self.sites]
        later = [site.ends() for site in self.sites]
        self._look()
        result, orders = self.result, self.orders
        acknowledged = orders.wanted
        result.moving += sum(map(sum, later)) - sum(map(sum, first))
        result.acknowledged, result.unanswered = len(acknowledged), orders.sent - len(acknowledged)
        result.lost += sum(len(acknowledged - keys(log)) for log in logs)
        named = {site.name: log for site, log in zip(self.sites, logs, strict=True)}
        doubled, result.redelivered = duplicates(named, orders.ordered)
        result.duplicates += doubled
        result.disorder += sum(disorder([*filter(orders.ordered, part)]) for log in logs for part in log.values())
        result.loops = sum(row["dropped"] for row in self._links.values())
        return logs

    def _judge_readers(self) -> None:
        result, billing = self.result, self.billing
        result.missed = skipped(self.there.log(), billing.first[self.there.name], billing.at_move)
        unread = sorted(self.orders.wanted - billing.read.keys())
        result.unread = len(unread)
        result.again, result.again_s = sum(count - 1 for count in billing.read.values()), billing.again_s
        result.wrong += [text for text in (billing.error, unread and f"not read: {', '.join(unread[:SOME])}") if text]

    def watch(self, seconds: float) -> None:
        """Wait, and print the progress of the links."""
        until, printed_s = time.monotonic() + seconds, 0.0
        while time.monotonic() < until:
            self._look()
            if time.monotonic() - printed_s >= 2.0:
                printed_s = time.monotonic()
                self._print()
            time.sleep(LOOK_S)

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait for a condition, and follow the links meanwhile; see `wait_for`."""

        def look() -> bool:
            self._look()
            return condition()

        wait_for(what, look, self.say, self._moves)

    def _moves(self) -> str:
        """What shows that the move goes on."""
        copied = sum(row["copied"] for row in self._links.values())
        read, acknowledged = len(self.billing.read), self.orders.count
        return f"{many(copied, 'order')} copied, {read:,} of {acknowledged:,} acknowledged orders read"

    def _look(self) -> None:
        status = self.trueup.status()
        if status is not None:
            self._links = {row["link"]: row for row in status["links"]}
            self.result.lag.append(sum(max(0, row["lag_records"]) for row in self._links.values()))

    def _print(self) -> None:
        lines = [
            f"{name}: copied {row['copied']:,}, loops prevented {row['dropped']:,}, behind {_behind(row)}"
            for name, row in self._links.items()
        ]
        self.say(f"  acknowledged {self.orders.count:,}  {';  '.join(lines)}")


def _behind(row: Mapping[str, Any]) -> str:
    """A link without one of its clusters does not know how far it is behind."""
    return "unknown" if row["state"] == "down" or row["lag_records"] < 0 else f"{row['lag_records']:,}"


def duplicates(logs: Mapping[str, Log], ordered: Callable[[str], bool]) -> tuple[int, int]:
    """Orders that a cluster has too often, and delayed orders that their own cluster stored again.

    ``logs``: the log of each cluster, by the name of the cluster. A broker that was killed delivers delayed messages
    again; a copy is as often as its original.
    """
    counts = {name: Counter(key for part in log.values() for key in part) for name, log in logs.items()}
    doubled = redelivered = 0
    for name, orders in counts.items():
        for key, count in orders.items():
            origin = key.partition("-")[0]
            if name == origin and not ordered(key):
                redelivered += count - 1
            else:
                doubled += max(0, count - (1 if name == origin else counts[origin][key]))
    return doubled, redelivered


def copying(links: int) -> Callable[[Mapping[str, Any]], bool]:
    """Whether a status shows this many links, which all copy."""
    return lambda status: links == sum(bool(row["rounds"] or row["leases"]) for row in status["links"])


def screen(title: str, result: Result, kinds: Mapping[str, str], more: Mapping[str, str]) -> Table:
    """The final screen, with rows for the ``kinds`` of orders, and ``more`` at the end."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, show_header=False)
    table.add_column("")
    table.add_column("", justify="right")
    rows = {
        "orders acknowledged": f"{result.acknowledged:,}",
        **kinds,
        "orders not acknowledged by the killed cluster": f"{result.unanswered:,}",
        "orders acknowledged by it and copied late": f"{result.late:,}",
        **{what: f"[bold {'red' if count else 'green'}]{count:,}[/]" for what, count in result.bad().items()},
        "orders read again by the group": f"{result.again:,}",
        "  as reading time before the kill": f"{result.again_s:.1f} s",
        "loops prevented": f"{result.loops:,}",
        "from the kill to reading on the other cluster": f"{result.moved_s:.1f} s",
        "from its return to equal logs": f"{result.level_s:.1f} s",
        **more,
        f"records behind, at most {max(result.lag, default=0):,}": spark(result.lag),
        "the drill took": f"{result.took_s:.1f} s",
    }
    for what, value in rows.items():
        table.add_row(what, value)
    for text in result.wrong:
        table.add_row("[red]" + text, "")
    return table


def spark(values: Sequence[int], width: int = 32) -> str:
    """Values over time as bars, each the maximum of its interval."""
    if not values:
        return "-"
    most, step = max(1, *values), max(1, -(-len(values) // width))
    tops = [max(values[at : at + step]) for at in range(0, len(values), step)]
    return "".join(BARS[-(-top * (len(BARS) - 1) // most)] for top in tops)
