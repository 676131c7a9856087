"""`trueup demo rocketmq`: two RocketMQ clusters replicate each other, and one of them to Kafka; its broker is killed,
and its writers and a Java push consumer continue at the other one.

The steps are those of a `MoveDemo`. At the end every message of all three clusters is compared with what was written.
"""

import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from trueup.connectors.embedded.kafka import SET as KAFKA_SET
from trueup.connectors.embedded.kafka import Kafka
from trueup.sandbox.demo import move
from trueup.sandbox.demo.application import DemoApplication
from trueup.sandbox.demo.move import SOME, MoveDemo, Result, copying
from trueup.sandbox.demo.rack_drill import fetch, printer
from trueup.sandbox.demo.rocketmq_shop import (
    COMPRESSED,
    DELAYED,
    TRANSACTIONAL,
    JavaBilling,
    LakeSite,
    RocketMqOrders,
    RocketMqSite,
    order_of,
)
from trueup.sandbox.demo.shop import GROUP, TOPIC, Log, disorder
from trueup.sandbox.demo.waiting import Say, made, start
from trueup.sandbox.servers.rocketmq import SET, RocketMq
from trueup.streams.runtime.spark.session import line

HANGZHOU, SHANGHAI, EVENTS = "hangzhou", "shanghai", "events"
BURST = 4_000


@dataclass(slots=True)
class RocketMqResult(Result):
    """The result of the move, with counts that only RocketMQ has."""

    altered: int = 0
    fifo: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    """The number of acknowledged orders of each kind."""

    def bad(self) -> dict[str, int]:
        """Also messages that are altered, and FIFO groups whose order is."""
        more = {"orders out of order in their FIFO group": self.fifo, "orders with other content": self.altered}
        return Result.bad(self) | more


def main() -> int:
    """Run the demo; returns 0 only if every acknowledged message is everywhere once, in order and unaltered."""
    err = Console(stderr=True, highlight=False, soft_wrap=True)
    fetch(err, (KAFKA_SET, SET, line().jars))
    with tempfile.TemporaryDirectory(prefix="trueup-rocketmq-") as place:
        result = run(Path(place), printer(err))
    Console(highlight=False).print(screen(result))
    return 0 if result.right else 1


def run(root: Path, say: Say) -> RocketMqResult:
    """Run the demo on its own servers below ``root``."""
    begun_ms = time.time_ns() // 1_000_000
    with ExitStack() as stack:
        clusters = [stack.enter_context(RocketMq(root, name)) for name in (HANGZHOU, SHANGHAI)]
        events = stack.enter_context(Kafka(root / EVENTS, "256m"))
        say("starting two RocketMQ clusters, hangzhou and shanghai, and a Kafka broker, events")
        start({server.name: server for cluster in clusters for server in cluster.servers} | {EVENTS: events}, say)
        hangzhou, shanghai = (RocketMqSite(cluster, begun_ms, say) for cluster in clusters)
        for site in (hangzhou, shanghai):
            stack.callback(site.close)
        hangzhou.create()
        trueup = stack.enter_context(DemoApplication(settings(hangzhou, shanghai, events), root / "trueup", say))
        say("starting Trueup with a link each way and one to Kafka, and the JVM of the consumer")
        billing = made("the JVM of the consumer", lambda: JavaBilling(root / GROUP), say)
        stack.callback(billing.close)
        trueup.wait_until("all links to copy", copying(3))
        lake = LakeSite(EVENTS, events, begun_ms, say)
        drill = RocketMqMove((hangzhou, shanghai, lake), billing, trueup, say, begun_ms)
        drill.run()
        return drill.outcome


def settings(hangzhou: RocketMqSite, shanghai: RocketMqSite, events: Kafka) -> dict[str, object]:
    """Settings as an operator would write them; the journal is on the Kafka broker."""
    link = {"topics": [TOPIC], "mode": "enforce", "heartbeat_s": 1.0, "lease_s": 2.0}
    return {
        "cluster": {"name": "rocketmq-demo"},
        "rocketmq": {
            HANGZHOU: {"namesrv": hangzhou.address, "bit": 0},
            SHANGHAI: {"namesrv": shanghai.address, "bit": 1},
        },
        "kafka": {EVENTS: {"bootstrap": events.bootstrap, "bit": 2}},
        "links": {
            "h-s": {"source": HANGZHOU, "target": SHANGHAI, **link, "groups": [GROUP]},
            "s-h": {"source": SHANGHAI, "target": HANGZHOU, **link},
            "to-lake": {"source": HANGZHOU, "target": EVENTS, **link},
        },
        "journal": {"bootstrap": events.bootstrap},
        "spark": {"memory": "768m"},
    }


class RocketMqMove(MoveDemo):
    """The move from hangzhou to shanghai, and a look at every message, also in Kafka."""

    def __init__(
        self,
        sites: tuple[RocketMqSite, RocketMqSite, LakeSite],
        billing: JavaBilling,
        trueup: DemoApplication,
        say: Say,
        begun_ms: int,
    ) -> None:
        self.outcome, self._all, self._begun_ms = RocketMqResult(), sites, begun_ms
        super().__init__(sites, RocketMqOrders(begun_ms), billing, trueup, say, self.outcome, BURST)

    def compare(self) -> list[Log]:
        """Compare all logs, their FIFO groups, and the content of every message."""
        logs = super().compare()
        self.outcome.fifo = sum(fifo_disorder(log, self._begun_ms) for log in logs)
        altered = [key for site in self._all for key in site.altered()]
        self.outcome.altered = len(altered)
        self.outcome.wrong += [f"other content: {', '.join(altered[:SOME])}"] if altered else []
        order_kinds = [order_of(key, self._begun_ms).kinds for key in self.orders.wanted]
        kinds = (DELAYED, TRANSACTIONAL, COMPRESSED)
        self.outcome.kinds = {kind: sum(kind in kinds for kinds in order_kinds) for kind in kinds}
        return logs


def fifo_disorder(log: Log, begun_ms: int) -> int:
    """Positions in FIFO groups that are not in the order of production, and queues besides the first of each group."""
    groups: dict[str, list[str]] = defaultdict(list)
    queues: dict[str, set[int]] = defaultdict(set)
    for queue, part in log.items():
        for key in part:
            if group := order_of(key, begun_ms).fifo:
                groups[group].append(key)
                queues[group].add(queue)
    return sum(map(disorder, groups.values())) + sum(len(group_queues) - 1 for group_queues in queues.values())


def screen(result: RocketMqResult) -> Table:
    """The final screen."""
    kinds = {f"  of these {kind}": f"{count:,}" for kind, count in result.kinds.items()}
    again = {"delayed orders that the killed broker delivered again": f"{result.redelivered:,}"}
    return move.screen("A RocketMQ cluster fails and returns; all its messages are also in Kafka", result, kinds, again)
