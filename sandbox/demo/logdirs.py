"""`trueup demo logdirs`: three disks of different size under one broker. The broker's own rule fills the smallest one;
Trueup balances them under a throttle, and new partitions are placed where space is free."""

import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from rich.console import Console
from rich.table import Table

from trueup.connectors.contract import Endpoint
from trueup.connectors.embedded.kafka import SET
from trueup.connectors.kafka.logdirs.client import LogDirsClient
from trueup.sandbox.demo.application import DemoApplication
from trueup.sandbox.demo.picture import DirectoriesAt, lines, name, svg
from trueup.sandbox.demo.rack_drill import fetch, printer
from trueup.sandbox.demo.shop import create
from trueup.sandbox.demo.volumes import DemoBroker, Volumes
from trueup.sandbox.demo.waiting import Say, start, wait_for
from trueup.state.common.counts import many
from trueup.state.common.errors import Stop
from trueup.state.logdirs.model import Broker as Seen
from trueup.state.logdirs.snapshot import Directory, ObservedBroker, observed
from trueup.streams.runtime.spark.session import line

MB = 1 << 20
SIZES = {"small": 128 * MB, "medium": 192 * MB, "large": 384 * MB}
TARGET, THROTTLE = 0.1, 10 * MB
OLD, NEW = ("orders", 12, 27 * MB), ("payments", 6, 4 * MB)
RECORD = 100_000
PRINT_S = 2.0
CLUSTER, NODE = "shop", 1


@dataclass(slots=True)
class LogDirsResult:
    """The result of the demo."""

    how: str = ""
    shots: list[DirectoriesAt] = field(default_factory=list)
    skews: list[float] = field(default_factory=list)
    new: dict[str, int] = field(default_factory=dict)
    """The number of partitions of the last topic on each disk when the topic was created, by name of the disk."""
    moves: int = 0
    moved: int = 0
    written: int = 0
    lost: int = 0
    throttle: int = 0
    took_s: float = 0.0

    @property
    def right(self) -> bool:
        """Balanced, no data lost, no throttle left, and no new partition on the small disk."""
        level = len(self.skews) > 1 and self.skews[-1] <= TARGET
        return level and not self.lost and not self.throttle and not self.new.get("small", 0)


def main(picture: Path) -> int:
    """Run the demo; returns 0 only if the directories are balanced, no data was lost and no throttle remains."""
    err = Console(stderr=True, highlight=False, soft_wrap=True)
    fetch(err, (SET, line().jars))
    with tempfile.TemporaryDirectory(prefix="trueup-logdirs-") as place:
        result = run(Path(place), printer(err))
    picture.write_text(svg(result.shots))
    out = Console(highlight=False, soft_wrap=True)
    for shot in result.shots:
        out.print("\n".join([*lines(shot), ""]))
    out.print(screen(result))
    out.print(f"The picture is in {picture}")
    return 0 if result.right else 1


def run(root: Path, say: Say) -> LogDirsResult:
    """Run the demo on its own servers below ``root``."""
    with Volumes(root / "disks", SIZES, say=say) as volumes, DemoBroker(root / "broker", volumes) as broker:
        say(
            f"starting a broker with three disks of {', '.join(f'{s >> 20} MiB' for s in SIZES.values())} "
            f"({volumes.how})"
        )
        start({CLUSTER: broker}, say)
        with LogDirsClient(Endpoint(CLUSTER, broker.bootstrap, 0)) as disks:
            return LogDirsDemo(broker, disks, root / "trueup", say).run(volumes.how)


class WatchedApplication(DemoApplication):
    """Trueup with queries about its plan."""

    def plan(self) -> list[dict[str, Any]]:
        """Planned moves and moves in progress."""
        rows: list[dict[str, Any]] = self._api.get("plan")
        return rows

    def moves(self) -> list[dict[str, Any]]:
        """Moves that have arrived."""
        rows = self._api.get("actions", limit=1_000)
        return [row for row in rows if row["kind"] == "move" and row["outcome"] == "arrived"]


class LogDirsDemo:
    """The steps, on a running broker."""

    def __init__(self, broker: DemoBroker, disks: LogDirsClient, root: Path, say: Say) -> None:
        self._broker, self._disks, self._root, self._say = broker, disks, root, say
        self._noise = np.random.default_rng(1).bytes(RECORD)
        self.result = LogDirsResult()

    def run(self, how: str) -> LogDirsResult:
        """Run all steps."""
        begun, result = time.monotonic(), self.result
        result.how = how
        self._say(
            "strategy partition, the broker's own: the same number of partitions on each disk, regardless of its size"
        )
        self._fill(*OLD)
        self._shoot("Strategy partition: the small disk is nearly full")
        with WatchedApplication(self._settings(), self._root, self._say) as trueup:
            self._say(f"starting Trueup: strategy size, moves at {THROTTLE >> 20} MiB/s at most")
            trueup.wait_until("the disks to be balanced", lambda _: self._level(trueup))
            self._shoot("Moved under a throttle")
            self._say("creating a topic: Trueup has cordoned all disks except the one with the most free space")
            self._fill(*NEW)
            trueup.wait_until("the disks to remain balanced", lambda _: self._level(trueup))
            self._shoot("Strategy size: new partitions are placed where space is free")
            result.moves = len(trueup.moves())
        self._check()
        result.took_s = time.monotonic() - begun
        return result

    def _settings(self) -> dict[str, object]:
        """Settings as an operator would write them; small disks need a small headroom."""
        return {
            "cluster": {"name": "logdirs"},
            "kafka": {CLUSTER: {"bootstrap": self._broker.bootstrap, "bit": 0}},
            "logdirs": {
                CLUSTER: {
                    "mode": "enforce",
                    "strategy": "size",
                    "target_skew": TARGET,
                    "headroom_bytes": 0,
                    "poll_s": 1.0,
                    "throttle_bytes_per_s": THROTTLE,
                }
            },
            "spark": {"memory": "768m"},
        }

    def _fill(self, topic: str, partitions: int, length: int) -> None:
        """Create a topic and write to it."""
        client: dict[str, str | int | float | bool] = {"bootstrap.servers": self._broker.bootstrap, "log_level": 3}
        create(self._broker.bootstrap, NewTopic(topic, partitions, 1), self._say)
        wait_for(f"the partitions of {topic}", lambda: len(self._homes(topic)) == partitions, self._say)
        self.result.new = dict(Counter(self._homes(topic)))
        producer = Producer({**client, "linger.ms": 20, "queue.buffering.max.messages": 500})
        what = f"the records of {topic} to be acknowledged"

        def left() -> str:
            return f"{many(len(producer), 'record')} left"

        for number in range(length // RECORD * partitions):
            while True:
                try:
                    producer.produce(topic, self._noise, partition=number % partitions)
                    break
                except BufferError:
                    wait_for(what, lambda: producer.poll(1.0), self._say, left)
        wait_for(what, lambda: not producer.flush(1.0), self._say, left)
        self.result.written += length // RECORD * partitions * RECORD
        self._say(f"topic {topic}: {many(partitions, 'partition')} of {length >> 20} MiB written")

    def _level(self, trueup: WatchedApplication) -> bool:
        """Whether nothing remains to do; prints the progress."""
        plan = trueup.plan()
        going = [row for row in plan if row["stage"] in ("ordered", "copying")]
        if time.monotonic() - self._printed_s > PRINT_S:
            self._printed_s = time.monotonic()
            for row in going:
                self._say(f"  {row['topic']}: {row['reason'].replace(str(self._root.parent / 'disks') + '/', '')}")
        status = trueup.status()
        seen = status is not None and status["ready"] and not status["logdirs"][0]["rules"]
        return seen and not plan and self._look().skew <= TARGET and not self._disks.throttled([NODE])

    _printed_s = 0.0

    def _seen(self) -> Seen:
        observation = self._disks.look()[0]
        if observation.broker is None:
            raise Stop("the broker to describe its log directories", observation.error, f"see {self._broker.log}")
        return observation.broker

    def _homes(self, topic: str) -> list[str]:
        """The disk of each partition."""
        seen = self._seen()
        rows = seen.replicas
        mine = [row for row in range(len(rows)) if rows.name(row)[0] == topic]
        return [Path(seen.dirs[rows.home[row]].path).name for row in mine]

    def _look(self) -> ObservedBroker:
        return observed(self._seen(), 0)

    def _shoot(self, title: str) -> None:
        """Take a picture after moved replicas' files are deleted."""

        def settled() -> bool:
            return all(d.total - d.usable - d.bytes < 8 * MB for d in self._look().directories)

        wait_for("files of moved replicas to be deleted", settled, self._say)
        seen = self._look()
        self.result.shots.append(DirectoriesAt(title, seen.directories))
        self.result.skews.append(seen.skew)
        self._say(f"{', '.join(_used(d) for d in seen.directories)}: skew {seen.skew:.0%}")

    def _check(self) -> None:
        """Check the final state of the broker."""
        rows = self._seen().replicas
        topics = (OLD[0], NEW[0])
        held = sum(int(rows.size[row]) for row in range(len(rows)) if rows.name(row)[0] in topics)
        self.result.lost = max(0, self.result.written - held)
        self.result.throttle = self._disks.throttled([NODE]).get(NODE, 0)


def screen(result: LogDirsResult) -> Table:
    """The final screen."""
    table = Table(
        title="Three disks of different size", title_justify="left", box=None, pad_edge=False, show_header=False
    )
    table.add_column("")
    table.add_column("", justify="right")
    first, last = result.skews[0], result.skews[-1]
    rows = {
        "disks": result.how,
        "skew by the broker's own rule": f"{first:.0%}",
        "skew with Trueup": f"[bold {'green' if last <= TARGET else 'red'}]{last:.0%}[/]",
        "moves": f"{result.moves}",
        "new partitions by disk": ", ".join(f"{disk} {result.new.get(disk, 0)}" for disk in SIZES),
        "bytes lost": f"[bold {'red' if result.lost else 'green'}]{result.lost:,}[/]",
        "throttle left": f"[bold {'red' if result.throttle else 'green'}]{result.throttle or 'none'}[/]",
        "the demo took": f"{result.took_s:.1f} s",
    }
    for what, text in rows.items():
        table.add_row(what, text)
    return table


def _used(d: Directory) -> str:
    return f"{name(d)} {(d.total - d.usable) / d.total:.0%}"
