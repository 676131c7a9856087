"""Links between RocketMQ clusters, and between RocketMQ and Kafka, while processes are killed: is every message exactly
once at the other end, in its order?

    python -m tests.replication.soak_rocketmq [--minutes N] [--every-s N] [--per-s N] [--seed N] [--faults RE]
        [-o table|json]

East requires signed requests, west requires TLS and has two brokers, and lake is Kafka. Links copy both ways between
east and west, and between east and lake. All faults are SIGKILLs: of workers, of the application with its JVM, of each
broker, and of the name servers. A fault is counted if messages arrived on all four ways before it and after it.
Finally, both ends of each way are compared log by log. Writes bench/results/soak-rocketmq.json. The exit code is 1 if a
message is lost, duplicated, reordered or came back, or if no messages arrive after a fault.
"""

import argparse
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path

from bench.common.keeping import keep
from bench.common.measure import Failed
from bench.common.rows import Row, alone
from tests.conformance.rocketmq import KEYS, USER, RocketMqPair, sections
from tests.e2e.trueup import Trueup
from tests.replication.faults import Faults
from tests.replication.pair import QUICK, create
from tests.replication.sides import LOGS, KafkaSide, RocketMqSide, Verdict, Way, Writer, arrived, judge
from tests.replication.soak import arguments, kill, kill_worker, watch
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.embedded.processes import wait_until

RESULTS = Path(__file__).parents[2] / "bench" / "results" / "soak-rocketmq.json"
EAST, WEST, LAKE = "east", "west", "lake"
SAME, CROSS = "soak_messages", "soak_records"
WAYS = ((SAME, EAST, WEST), (SAME, WEST, EAST), (CROSS, EAST, LAKE), (CROSS, LAKE, EAST))
LOOK_S, BACK_S, LEVEL_S, STILL_S = 30.0, 240.0, 300.0, 10.0
WEIGHTS = {"worker": 3}


def main() -> int:
    """Run, print, and write the results."""
    chosen = arguments("tests.replication.soak_rocketmq", "Links under kills", 30.0, 5.0, 60.0)
    return keep(lambda root: _soak(chosen, root), RESULTS, chosen.output)


def _soak(chosen: argparse.Namespace, root: Path) -> list[Row]:
    numbers = count()
    with ExitStack() as stack:
        pair = stack.enter_context(RocketMqPair(lambda: _made(root / f"server{next(numbers)}")))
        lake = stack.enter_context(Kafka(root / LAKE, settings=QUICK))
        lake.up()
        _create_topics(pair, lake)
        trueup = stack.enter_context(_linked(pair, lake, root / "trueup"))
        sides = {EAST: RocketMqSide(EAST, pair.east), WEST: RocketMqSide(WEST, pair.west), LAKE: KafkaSide(LAKE, lake)}
        ways = [Way(Writer(sides[source], topic, chosen.per_s), sides[target]) for topic, source, target in WAYS]
        works, kinds = partial(_works, ways), _kinds(pair, lake, trueup)
        kinds = {name: act for name, act in kinds.items() if re.search(chosen.faults, name)}
        with ExitStack() as writing:
            for way in ways:
                writing.enter_context(way.writer)
            with Faults(kinds, chosen.every_s, chosen.seed, WEIGHTS, works) as faults:
                watch(faults, chosen.minutes * 60, LOOK_S, lambda: _written(ways))
        _settle(ways)
        return _rows({f"{way.writer.topic}, {way.name}": judge(way) for way in ways}, faults.done, chosen.minutes)


def _made(root: Path) -> Path:
    root.mkdir(parents=True)
    return root


def _create_topics(pair: RocketMqPair, lake: Kafka) -> None:
    pair.east.create(SAME, LOGS)
    pair.east.create(CROSS, LOGS)
    pair.west.create_everywhere(SAME, LOGS // 2)
    create(lake, CROSS, LOGS, {})


@contextmanager
def _linked(pair: RocketMqPair, lake: Kafka, root: Path) -> Iterator[Trueup]:
    """The application with two opposite links on each topic."""
    links = {
        f"{source}-{target}": {"source": source, "target": target, "topics": [topic], "mode": "enforce"}
        for topic, source, target in WAYS
    }
    os.environ |= dict(zip(KEYS.values(), USER, strict=True))
    kafka = {LAKE: {"bootstrap": lake.bootstrap, "bit": 2}}
    with Trueup(None, root, rocketmq=sections(pair), kafka=kafka, links=links) as made:
        made.start()
        yield made


def _kinds(pair: RocketMqPair, lake: Kafka, trueup: Trueup) -> dict[str, Callable[[], None]]:
    """The faults by name. Each function returns when the process runs again."""
    kinds: dict[str, Callable[[], None]] = {
        "worker": lambda: kill_worker(trueup),
        "application": lambda: kill(trueup),
        f"broker {LAKE}": lake.restart,
    }
    for name, cluster in ((EAST, pair.east), (WEST, pair.west)):
        kinds[f"name server {name}"] = cluster.name_server.restart
        kinds |= {f"broker {name} {broker.name}": broker.restart for broker in cluster.brokers}
    return kinds


def _works(ways: list[Way], when: str) -> None:
    """Wait until bodies that are written from now on have arrived on all ways."""
    wanted = [{number: end + 1 for number, end in way.writer.stored.items()} for way in ways]
    for way, numbers in zip(ways, wanted, strict=True):
        wait_until(partial(arrived, way, numbers), BACK_S, f"bodies from {way.name} {when}")


def _written(ways: list[Way]) -> str:
    return "; ".join(f"{way.name} {sum(way.writer.stored.values()):,}" for way in ways)


def _settle(ways: list[Way]) -> None:
    """Wait until everything has arrived, and then for what must not arrive."""
    for way in ways:
        wait_until(partial(arrived, way, {n: end - 1 for n, end in way.writer.stored.items()}), LEVEL_S, way.name)
    time.sleep(STILL_S)


def _rows(verdicts: dict[str, Verdict], done: Counter[str], minutes: float) -> list[Row]:
    wrong = {name: found for name, found in verdicts.items() if not found.right}
    if wrong:
        raise Failed(f"messages that are not as they should be: {wrong}; faults: {dict(done)}")
    rows = [alone("Minutes", "", [minutes])]
    rows.append(alone("SIGKILLs; links copied before and after each", "times", [sum(done.values())]))
    rows += [alone(f"  {name}", "times", [times]) for name, times in sorted(done.items())]
    for name, found in verdicts.items():
        rows.append(alone(f"{name}: messages", "", [found.bodies]))
        rows.append(alone("  lost, missing, out of order, came back", "", [sum(found[1:]) - found.doubled]))
        rows.append(alone("  doubled", "", [found.doubled]))
    return rows


if __name__ == "__main__":
    sys.exit(main())
