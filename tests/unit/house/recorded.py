"""Samples of an application in which each stream runs and each event occurred, as input of `promtool test rules`."""

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.unit.cli.fake_engine import FakeEngine
from trueup.state.common.rules import Verdict
from trueup.streams.catalog import all_metrics
from trueup.streams.logdirs.metrics import LogDirMetrics
from trueup.streams.placement.metrics import PlacementMetrics
from trueup.streams.replication.metrics import LinkMetrics

CLUSTER = "east"
MINUTES = 120
"""Duration of the recording, with a sample each minute."""
TARGET = {"instance": "a:8480", "job": "trueup"}
"""Labels that Prometheus adds to the samples of a target."""
_PROGRESS = {
    "name": "placement",
    "batchDuration": 1500,
    "numInputRows": 1000,
    "stateOperators": [{"numRowsTotal": 64, "memoryUsedBytes": 4096}],
}


@dataclass(frozen=True, slots=True)
class Recorded:
    """One series. ``values``: in the notation of promtool."""

    name: str
    labels: dict[str, str]
    values: str

    def series(self) -> dict[str, str]:
        """An entry of ``input_series``."""
        labels = ",".join(f'{name}="{value}"' for name, value in sorted({**TARGET, **self.labels}.items()))
        return {"series": f"{self.name}{{{labels}}}", "values": self.values}


def full_status() -> FakeEngine:
    """An engine with links, an offline log directory, unreferenced ledgers, drifted ledgers and read priorities."""
    engine = FakeEngine().drill().linked().shelved().forgotten()
    engine.shelves[0] |= {"online": False}
    engine.state["read_priority"] = {
        "mode": "approve",
        "rules": {"read_priority.would-stall": 1},
        "copies": {"bookkeeper:whole": 7},
        "due": 1,
        "namespaces": 1,
        "topics": 1,
        "switched": 1,
        "brokers": 1,
        "at_ms": 0,
        "problem": "",
        "incomplete": "",
    }
    engine.state["deletion"]["forgotten"] += [
        {"namespace": "public/old", "rule": rule, "ledgers": 1, "bytes": 0}
        for rule in ("deletion.missing", "deletion.copy-lost")
    ]
    engine.state["sources"] += [
        {"name": name, "state": "up", "age_ms": 0, "detail": ""} for name in ("autorecovery", "racks")
    ]
    return engine


def exposition() -> str:
    """The text of `/metrics`."""
    engine, made = full_status(), all_metrics(CLUSTER)
    made.of(LinkMetrics).declare(["east-west"])
    made.of(LogDirMetrics).declare(["east"])
    made.of(PlacementMetrics).findings(Counter((row["rule"], Verdict[row["verdict"].upper()]) for row in engine.judged))
    made.on_progress(_PROGRESS)
    made.restarted("placement")
    made.status(engine.status(), lambda noun: getattr(engine, noun)())
    return made.text().decode()


def record() -> list[Recorded]:
    """Every series: counters grow by one each minute, gauges remain."""
    return [
        Recorded(sample.name, dict(sample.labels), _values(family.type, sample))
        for family in text_string_to_metric_families(exposition())
        for sample in family.samples
        if not sample.name.endswith("_created") and not math.isnan(sample.value)
    ]


def _values(kind: str, sample: Any) -> str:
    step = int(kind in ("counter", "histogram"))
    return f"{sample.value:.17g}+{step}x{MINUTES}"
