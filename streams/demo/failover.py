"""`trueup demo failover`: two clusters replicate each other; one is killed, and its readers and writers continue on the
other one.

Replication is asynchronous: orders that the killed cluster acknowledged last exist only there until it returns. They
are copied then, late but not lost, and counted. In the second part the cluster is killed again and returns without its
data; this is detected, and it is refilled.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from trueup.connectors.sandbox.jvm.processes import wait_until
from trueup.connectors.sandbox.servers.kafka import SET, Kafka
from trueup.streams.demo import shop
from trueup.streams.demo.application import Application
from trueup.streams.demo.rack_drill import fetch, printer
from trueup.streams.demo.shop import GROUP, PARTITIONS, TOPIC, Billing, Log, ShopOrders
from trueup.streams.runtime.spark.session import line

Say = Callable[[str], None]
EAST, WEST = "east", "west"
TRAFFIC_S = 10.0
BURST = 20_000
LIMIT_S = 180.0
STILL_S = 3.0
LOOK_S = 0.25
REPLACED = "replication.target-replaced"
BARS = " ▁▂▃▄▅▆▇█"


@dataclass(slots=True)
class FailoverResult:
    """Result of the failover, in records unless stated otherwise. ``lag``: records behind over time, both links."""

    acknowledged: int = 0
    unanswered: int = 0
    late: int = 0
    lost: int = 0
    duplicates: int = 0
    disorder: int = 0
    missed: int = 0
    again: int = 0
    again_s: float = 0.0
    loops: int = 0
    moving: int = 0
    unread: int = 0
    moved_s: float = 0.0
    level_s: float = 0.0
    refilled: int = 0
    noticed_s: float = 0.0
    refill_s: float = 0.0
    took_s: float = 0.0
    wrong: list[str] = field(default_factory=list)
    lag: list[int] = field(default_factory=list)

    @property
    def right(self) -> bool:
        """No record is lost, duplicated, out of order, skipped by the readers, or copied in a loop."""
        return not (
            self.lost or self.duplicates or self.disorder or self.missed or self.moving or self.unread or self.wrong
        )


def main() -> int:
    """Run the demo; returns 0 only if no acknowledged record is lost or duplicated and none is copied in a loop."""
    err = Console(stderr=True, highlight=False, soft_wrap=True)
    fetch(err, (SET, line().jars))
    with tempfile.TemporaryDirectory(prefix="trueup-failover-") as place:
        result = run(Path(place), printer(err))
    Console(highlight=False).print(screen(result))
    return 0 if result.right else 1


def run(root: Path, say: Say) -> FailoverResult:
    """Run the demo on its own servers below ``root``."""
    with Kafka(root / EAST, "256m") as east, Kafka(root / WEST, "256m") as west:
        say("starting two Kafka clusters, east and west")
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(_begin, (east, west)))
        with Application(settings(east, west), root / "trueup") as trueup:
            say("starting Trueup with a link each way")
            trueup.wait_until("both links to copy", _both_copy)
            return Failover(east, west, trueup, say).run()


def settings(east: Kafka, west: Kafka) -> dict[str, object]:
    """Settings as an operator would write them; the journal is on the cluster that is not killed."""
    link = {"topics": [TOPIC], "mode": "enforce", "copy": "batches", "heartbeat_s": 1.0, "lease_s": 2.0}
    return {
        "cluster": {"name": "failover"},
        "kafka": {EAST: {"bootstrap": east.bootstrap, "bit": 0}, WEST: {"bootstrap": west.bootstrap, "bit": 1}},
        "links": {
            "east-west": {"source": EAST, "target": WEST, **link, "groups": [GROUP]},
            "west-east": {"source": WEST, "target": EAST, **link},
        },
        "journal": {"bootstrap": west.bootstrap},
        "spark": {"memory": "768m"},
    }


class Failover:
    """The steps, on running clusters with a running application."""

    def __init__(self, east: Kafka, west: Kafka, trueup: Application, say: Say) -> None:
        self._east, self._west, self._trueup, self._say = east, west, trueup, say
        self._orders, self._billing = ShopOrders(), Billing()
        self._links: dict[str, dict[str, Any]] = {}
        self.result = FailoverResult()

    def run(self) -> FailoverResult:
        """Run all steps."""
        begun = time.monotonic()
        try:
            self._shop_in_east()
            self._east_dies()
            self._east_returns()
            self._billing.end()
            self._compare()
            self._judge_readers()
            self._east_loses_its_data()
            self._compare()
        finally:
            self._orders.end()
            self._billing.end()
        self.result.took_s = time.monotonic() - begun
        return self.result

    def _shop_in_east(self) -> None:
        self._say(f"writing {shop.PER_S:g} orders per second to east; the group {GROUP} reads them there")
        self._orders.begin(EAST, self._east.bootstrap)
        self._billing.begin(EAST, self._east.bootstrap, "earliest")
        self._watch(TRAFFIC_S)
        self._wait("the group's offsets to be translated to west", lambda: min(self._translated()) > 0)
        self._watch(TRAFFIC_S / 2)

    def _east_dies(self) -> None:
        before = self._orders.count
        self._orders.burst(BURST)
        wait_until(lambda: self._orders.count >= before + BURST // 2, LIMIT_S, "half of a burst to be acknowledged")
        self._east.kill()
        died = time.monotonic()
        self._say(f"east is killed (SIGKILL) during a burst of {BURST:,} orders")
        self._orders.end()
        self._billing.end()
        self._orders.begin(WEST, self._west.bootstrap)
        self._billing.begin(WEST, self._west.bootstrap, "error")
        self._wait("the group to read at west", lambda: len(self._billing.first[WEST]) == PARTITIONS)
        self.result.moved_s = time.monotonic() - died
        self._say(f"writers and readers continue on west, {self.result.moved_s:.1f} s after the kill")
        self.result.late = len(self._orders.acknowledged[EAST] - keys(shop.whole(self._west.bootstrap)))
        self._say(f"{self.result.late:,} orders that east acknowledged are not on west yet")
        self._watch(TRAFFIC_S)

    def _east_returns(self) -> None:
        back = time.monotonic()
        self._east.up()
        self._say("east is back; links copy the missing orders in both directions")
        self._watch(TRAFFIC_S / 2)
        self._orders.end()
        wanted = set().union(*self._orders.acknowledged.values())
        self._wait("both clusters to have every order", lambda: self._have(wanted), 2 * LIMIT_S)
        self.result.level_s = time.monotonic() - back
        self._say(f"both clusters have every order, {self.result.level_s:.1f} s after east was started")
        self._wait("the group to have read every order", lambda: wanted <= self._billing.read.keys())

    def _east_loses_its_data(self) -> None:
        self._east.kill()
        shutil.rmtree(self._east.root / "data")
        self._say("east is killed again and all its data is deleted; orders are written to west")
        self._orders.begin(WEST, self._west.bootstrap)
        self._east.up()
        back = time.monotonic()
        self._wait(
            "the loss to be detected", lambda: any(REPLACED in copy["error"] for copy in self._copies("west-east"))
        )
        self.result.noticed_s = time.monotonic() - back
        self._say(f"east is back without data: detected after {self.result.noticed_s:.1f} s, and the links stopped")
        begun = time.monotonic()
        self._wait("the refill to begin", self._refill)
        self._say(f"west-east refills east with {self.result.refilled:,} orders")
        self._watch(TRAFFIC_S / 2)
        self._wait("the refill to end", lambda: all(copy["refill_until"] < 0 for copy in self._copies("west-east")))
        self._orders.begin(EAST, self._east.bootstrap)
        self._say("east is refilled; orders are written there again")
        self._watch(TRAFFIC_S / 2)
        self._orders.end()
        wanted = set().union(*self._orders.acknowledged.values())
        self._wait("both clusters to have every order again", lambda: self._have(wanted), 2 * LIMIT_S)
        self.result.refill_s = time.monotonic() - begun
        self._say(f"both clusters have every order, {self.result.refill_s:.1f} s after the refill began")

    def _refill(self) -> bool:
        rows = self._trueup.refill("west-east")
        self.result.refilled = sum(row["records"] for row in rows)
        return all(row["stage"] == "copying" for row in rows)

    def _copies(self, link: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._trueup.link(link)["copies"]
        return found

    def _have(self, wanted: set[str]) -> bool:
        return all(wanted <= keys(shop.whole(broker.bootstrap)) for broker in (self._east, self._west))

    def _compare(self) -> None:
        """Compare both logs, twice with some seconds in between: no more records may arrive."""
        first = [shop.ends(broker.bootstrap) for broker in (self._east, self._west)]
        time.sleep(STILL_S)
        logs = [shop.whole(broker.bootstrap) for broker in (self._east, self._west)]
        later = [shop.ends(broker.bootstrap) for broker in (self._east, self._west)]
        self._look()
        result, orders = self.result, self._orders
        wanted = set().union(*orders.acknowledged.values())
        result.moving += sum(map(sum, later)) - sum(map(sum, first))
        result.acknowledged, result.unanswered = len(wanted), orders.sent - len(wanted)
        result.lost += sum(len(wanted - keys(log)) for log in logs)
        result.duplicates += sum(len(part) - len(set(part)) for log in logs for part in log.values())
        result.disorder += sum(disorder(part) for log in logs for part in log.values())
        result.loops = sum(row["dropped"] for row in self._links.values())

    def _judge_readers(self) -> None:
        result, billing = self.result, self._billing
        wanted = set().union(*self._orders.acknowledged.values())
        result.missed = skipped(shop.whole(self._west.bootstrap), billing.first[WEST], billing.at_move)
        result.unread = len(wanted - billing.read.keys())
        result.again, result.again_s = sum(count - 1 for count in billing.read.values()), billing.again_s
        result.wrong = [text for text in (billing.error,) if text]

    def _translated(self) -> list[int]:
        self._look()
        return shop.committed(self._west.bootstrap)

    def _watch(self, seconds: float) -> None:
        """Wait, and print the progress of the links."""
        until, printed_s = time.monotonic() + seconds, 0.0
        while time.monotonic() < until:
            self._look()
            if time.monotonic() - printed_s >= 2.0:
                printed_s = time.monotonic()
                self._print()
            time.sleep(LOOK_S)

    def _wait(self, what: str, condition: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
        def look() -> bool:
            self._look()
            return condition()

        wait_until(look, limit_s, what)

    def _look(self) -> None:
        status = self._trueup.status()
        if status is not None:
            self._links = {row["link"]: row for row in status["links"]}
            self.result.lag.append(sum(row["lag_records"] for row in self._links.values()))

    def _print(self) -> None:
        lines = [f"{name}: copied {row['copied']:,}, loops prevented {row['dropped']:,}, behind {row['lag_records']:,}"
                for name, row in self._links.items()]  # fmt: skip
        self._say(f"  acknowledged {self._orders.count:,}  {';  '.join(lines)}")


def keys(log: Log) -> set[str]:
    """All keys of a topic."""
    return {key for part in log.values() for key in part}


def disorder(part: Sequence[str]) -> int:
    """Positions where one writer's orders are not in the order of their production."""
    found = 0
    for cluster in (EAST, WEST):
        numbers = [int(key.partition("-")[2]) for key in part if key.startswith(cluster)]
        found += sum(later < earlier for earlier, later in pairwise(numbers))
    return found


def skipped(log: Log, first: dict[int, str], read: set[str]) -> int:
    """Records before the first that the group read in each partition and that it had not read on the other cluster."""
    return sum(len(set(log[number][: log[number].index(key)]) - read) for number, key in first.items())


def screen(result: FailoverResult) -> Table:
    """The final screen."""
    table = Table(
        title="A cluster fails and returns, then returns without its data",
        title_justify="left",
        box=None,
        pad_edge=False,
        show_header=False,
    )
    table.add_column("")
    table.add_column("", justify="right")
    bad = {
        "acknowledged orders that a cluster lacks": result.lost,
        "duplicate orders": result.duplicates,
        "orders out of order": result.disorder,
        "orders skipped by the group during failover": result.missed,
        "orders never read by the group": result.unread,
        "records copied in a loop": result.moving,
    }
    rows = {
        "orders acknowledged": f"{result.acknowledged:,}",
        "orders not acknowledged by the killed cluster": f"{result.unanswered:,}",
        "orders acknowledged by it and copied late": f"{result.late:,}",
        **{what: f"[bold {'red' if count else 'green'}]{count:,}[/]" for what, count in bad.items()},
        "orders read again by the group": f"{result.again:,}",
        "  as reading time before the kill": f"{result.again_s:.1f} s",
        "loops prevented": f"{result.loops:,}",
        "from the kill to reading on the other cluster": f"{result.moved_s:.1f} s",
        "from its return to equal logs": f"{result.level_s:.1f} s",
        "orders refilled after the loss of its data": f"{result.refilled:,}",
        "from its return without data to detection": f"{result.noticed_s:.1f} s",
        "from the start of the refill to equal logs, at most": f"{result.refill_s:.1f} s",
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


def _both_copy(status: dict[str, Any]) -> bool:
    return len(status["links"]) == 2 and all(row["rounds"] or row["leases"] for row in status["links"])


def _begin(broker: Kafka) -> None:
    broker.up()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 3})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config={"retention.ms": "-1"})])[TOPIC].result(30)
