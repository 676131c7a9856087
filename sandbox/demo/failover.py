"""`trueup demo failover`: two clusters replicate each other; one is killed, and its readers and writers continue on the
other one.

The first part is a `MoveDemo`. In the second part the cluster is killed again and returns without its data; this is
detected, and it is refilled.
"""

import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import NewTopic
from rich.console import Console
from rich.table import Table

from trueup.connectors.embedded.kafka import SET, Kafka
from trueup.sandbox.demo import move
from trueup.sandbox.demo.application import DemoApplication
from trueup.sandbox.demo.move import TRAFFIC_S, MoveDemo, Result, copying
from trueup.sandbox.demo.rack_drill import fetch, printer
from trueup.sandbox.demo.shop import GROUP, PARTITIONS, TOPIC, KafkaBilling, KafkaOrders, KafkaSite, create
from trueup.sandbox.demo.waiting import Say, start
from trueup.state.common.counts import many
from trueup.streams.runtime.spark.session import line

EAST, WEST = "east", "west"
BURST = 20_000
REPLACED = "replication.target-replaced"


@dataclass(slots=True)
class FailoverResult(Result):
    """The result of the move and of the refill."""

    refilled: int = 0
    noticed_s: float = 0.0
    refill_s: float = 0.0


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
        start({EAST: east, WEST: west}, say)
        for broker in (east, west):
            create(broker.bootstrap, NewTopic(TOPIC, PARTITIONS, 1, config={"retention.ms": "-1"}), say)
        with DemoApplication(settings(east, west), root / "trueup", say) as trueup:
            say("starting Trueup with a link each way")
            trueup.wait_until("both links to copy", copying(2))
            drill = Failover(KafkaSite(EAST, east, say), KafkaSite(WEST, west, say), trueup, say)
            drill.run()
            return drill.outcome


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


class Failover(MoveDemo):
    """The move from east to west, and the loss of east's data."""

    def __init__(self, east: KafkaSite, west: KafkaSite, trueup: DemoApplication, say: Say) -> None:
        self.outcome, self._east = FailoverResult(), east
        super().__init__((east, west), KafkaOrders(), KafkaBilling(), trueup, say, self.outcome, BURST)

    def steps(self) -> None:
        """Move, return, and compare; then lose the data, refill, and compare again."""
        super().steps()
        self._east_loses_its_data()
        self.compare()

    def _east_loses_its_data(self) -> None:
        self.here.kill()
        shutil.rmtree(self._east.broker.root / "data")
        self.complete.clear()
        self.say("east is killed again and all its data is deleted; orders are written to west")
        self.orders.begin(WEST, self.there.address)
        self.here.up()
        back = time.monotonic()
        self.wait(
            "the loss to be detected", lambda: any(REPLACED in copy["error"] for copy in self._copies("west-east"))
        )
        self.outcome.noticed_s = time.monotonic() - back
        self.say(f"east is back without data: detected after {self.outcome.noticed_s:.1f} s, and the links stopped")
        begun = time.monotonic()
        self.wait("the refill to begin", self._refill)
        self.say(f"west-east refills east with {many(self.outcome.refilled, 'order')}")
        self.watch(TRAFFIC_S / 2)
        self.wait("the refill to end", lambda: all(copy["refill_until"] < 0 for copy in self._copies("west-east")))
        self.orders.begin(EAST, self.here.address)
        self.say("east is refilled; orders are written there again")
        self.watch(TRAFFIC_S / 2)
        self.orders.end()
        acknowledged = self.orders.wanted
        self.wait("both clusters to have every order again", lambda: self.have(acknowledged))
        self.outcome.refill_s = time.monotonic() - begun
        self.say(f"both clusters have every order, {self.outcome.refill_s:.1f} s after the refill began")

    def _refill(self) -> bool:
        rows = self.trueup.refill("west-east")
        self.outcome.refilled = sum(row["records"] for row in rows)
        return all(row["stage"] == "copying" for row in rows)

    def _copies(self, link: str) -> list[dict[str, Any]]:
        copies: list[dict[str, Any]] = self.trueup.link(link)["copies"]
        return copies


def screen(result: FailoverResult) -> Table:
    """The final screen."""
    more = {
        "orders refilled after the loss of its data": f"{result.refilled:,}",
        "from its return without data to detection": f"{result.noticed_s:.1f} s",
        "from the start of the refill to equal logs, at most": f"{result.refill_s:.1f} s",
    }
    return move.screen("A cluster fails and returns, then returns without its data", result, {}, more)
