"""Metrics contain the reported values, with labels of bounded cardinality."""

import math
import re
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.cli.fake_engine import FakeEngine
from tests.unit.cli.fake_rows import healthy_status, link_row
from trueup.connectors.contract import LogId, Position, Progress
from trueup.state.common.rules import Verdict
from trueup.state.placement.lifecycle import RepairStage
from trueup.state.placement.rules import RULES
from trueup.streams.bookkeeper.metrics import ZooKeeperMetrics
from trueup.streams.catalog import all_metrics
from trueup.streams.placement.metrics import PlacementMetrics
from trueup.streams.replication.metrics import LinkMetrics
from trueup.streams.runtime.metrics import Metrics, behind

PROGRESS = {
    "name": "placement",
    "batchId": 7,
    "batchDuration": 1500,
    "numInputRows": 1000,
    "processedRowsPerSecond": 666.6,
    "stateOperators": [{"numRowsTotal": 64, "memoryUsedBytes": 4096}, {"numRowsTotal": 6, "memoryUsedBytes": 4}],
    "sources": [
        {
            "description": "KafkaV2",
            "endOffset": {"t": {"0": 900, "1": 50}},
            "latestOffset": {"t": {"0": 1000, "1": 60}},
        },
        {"description": "rate", "endOffset": 3, "latestOffset": 9},
    ],
}


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return float(sample.value)
    return None


@pytest.fixture
def metrics() -> Metrics:
    return all_metrics("east")


def test_two_applications_do_not_share_a_registry() -> None:
    assert all_metrics().registry is not all_metrics().registry


def test_every_series_names_the_cluster(metrics: Metrics) -> None:
    metrics.status(healthy_status())
    families = text_string_to_metric_families(metrics.text().decode())
    invalid = [
        s.name
        for f in families
        for s in f.samples
        if f.name.startswith("trueup_") and s.labels.get("cluster") != "east"
    ]
    assert invalid == []


def test_levels_follow_the_status(metrics: Metrics) -> None:
    metrics.status(FakeEngine().drill().state)
    result = {
        "trueup_oldest_drift_seconds": 240.0,
        "trueup_marks_cap": 200.0,
        "trueup_ready": 1.0,
        "trueup_paused": 0.0,
        "trueup_held": 0.0,
        "trueup_ledgers_without_copies": 1.0,
    }
    assert {name: value(metrics, name) for name in result} == result


def test_marks_are_distinguished(metrics: Metrics) -> None:
    metrics.status(FakeEngine().drill().state)
    assert [value(metrics, "trueup_marks_outstanding", owner=o) for o in ("ours", "others")] == [30, 1]


def test_one_mode_holds(metrics: Metrics) -> None:
    metrics.status(healthy_status() | {"mode": "enforce"})
    assert [value(metrics, "trueup_mode", mode=m) for m in ("observe", "approve", "enforce")] == [0, 0, 1]


def test_a_source_is_in_one_state(metrics: Metrics) -> None:
    metrics.status(healthy_status())
    states = [value(metrics, "trueup_source_state", source="zookeeper", state=s) for s in ("up", "slow", "down")]
    assert (states, value(metrics, "trueup_observation_age_seconds", source="zookeeper")) == ([1, 0, 0], 0.312)


def test_nothing_drifted_is_zero(metrics: Metrics) -> None:
    metrics.status(FakeEngine().drill().state)
    metrics.status(healthy_status())
    assert value(metrics, "trueup_oldest_drift_seconds") == 0


def test_findings_by_rule_go_down_again(metrics: Metrics) -> None:
    metrics.of(PlacementMetrics).findings({("placement.lost-member", Verdict.DRIFTED): 5})
    metrics.of(PlacementMetrics).findings({("placement.too-few-racks", Verdict.DRIFTED): 2})
    assert [value(metrics, "trueup_findings", rule=f"placement.{r}") for r in ("lost-member", "too-few-racks")] == [
        0,
        2,
    ]


def test_unknown_by_reason_adds_up_to_all_unknown(metrics: Metrics) -> None:
    metrics.of(PlacementMetrics).findings({("placement.unreadable", Verdict.UNKNOWN): 3})
    metrics.status(healthy_status() | {"counts": {"true": 0, "drifted": 0, "blocked": 0, "unknown": 10}})
    reasons = ("placement.unreadable", "placement.unknown-bookie", "stale")
    assert [value(metrics, "trueup_unknown_ledgers", reason=r) for r in reasons] == [3, 0, 7]


def test_what_copies_repair_is_counted_with_its_verdict(metrics: Metrics) -> None:
    metrics.of(PlacementMetrics).findings({("placement.no-walk", Verdict.DRIFTED): 4})
    verdicts = ("drifted", "blocked")
    assert [value(metrics, "trueup_findings", rule="placement.no-walk", verdict=each) for each in verdicts] == [4, 0]


def test_labels_of_findings_are_the_table_of_rules(metrics: Metrics) -> None:
    metrics.of(PlacementMetrics).findings(
        {("placement.lost-member", Verdict.DRIFTED): 1, ("no.such-rule", Verdict.DRIFTED): 9}
    )
    families = {f.name: f for f in text_string_to_metric_families(metrics.text().decode())}
    named = {s.labels["rule"] for s in families["trueup_findings"].samples}
    assert named == {rule.id for rule in RULES if rule.verdict is not Verdict.TRUE}


def test_progress_of_a_query(metrics: Metrics) -> None:
    metrics.on_progress(PROGRESS)
    result = {
        "trueup_batch_rows_total": 1000,
        "trueup_behind_records": 110,
        "trueup_state_rows": 70,
        "trueup_state_memory_bytes": 4100,
        "trueup_batch_duration_seconds_sum": 1.5,
    }
    assert {name: value(metrics, name, query="placement") for name in result} == result


def test_an_idle_report_is_no_batch(metrics: Metrics) -> None:
    metrics.on_progress({**PROGRESS, "numInputRows": 0})
    assert value(metrics, "trueup_batch_duration_seconds_count", query="placement") is None


@pytest.mark.parametrize(
    "progress",
    [
        {},
        {"name": None, "sources": None, "stateOperators": None},
        {"sources": [{"endOffset": None}]},
        {"sources": [{"endOffset": {}, "latestOffset": None}], "numInputRows": 3},
    ],
)
def test_a_report_with_gaps_is_taken(metrics: Metrics, progress: dict[str, Any]) -> None:
    metrics.on_progress(progress)
    assert value(metrics, "trueup_behind_records", query="unnamed") == 0


def test_a_partition_not_read_yet_is_not_behind() -> None:
    assert behind({"sources": [{"endOffset": {"t": {"0": 5}}, "latestOffset": {"t": {"0": 5, "1": 9}}}]}) == 0


def test_a_reconnect_is_counted_and_the_first_connection_is_not(metrics: Metrics) -> None:
    received = metrics.of(ZooKeeperMetrics).session()
    for state in ("CONNECTED", "SUSPENDED", "CONNECTED", "LOST", "CONNECTED"):
        received(state)
    assert value(metrics, "trueup_zookeeper_reconnects_total") == 2


def test_sessions_are_counted_by_state(metrics: Metrics) -> None:
    one, other, ended = (metrics.of(ZooKeeperMetrics).session() for _ in range(3))
    steps = ((one, "CONNECTED"), (other, "CONNECTED"), (other, "SUSPENDED"), (ended, "CONNECTED"), (ended, "LOST"))
    for received, state in steps:
        received(state)
    assert [value(metrics, "trueup_zookeeper_sessions", state=s) for s in ("connected", "suspended")] == [1, 1]


def test_events_are_counted(metrics: Metrics) -> None:
    metrics.of(PlacementMetrics).action("mark", "written")
    metrics.of(PlacementMetrics).repair(RepairStage.SAFE)
    metrics.restarted("placement")
    metrics.of(PlacementMetrics).healed(12.5)
    counted = [
        value(metrics, "trueup_actions_total", kind="mark", outcome="written"),
        value(metrics, "trueup_repair_steps_total", stage="safe"),
        value(metrics, "trueup_restarts_total", stream="placement"),
        value(metrics, "trueup_time_to_safe_seconds_sum"),
    ]
    assert counted == [1, 1, 1, 12.5]


def test_a_supervised_task_has_a_counter_before_it_fails(metrics: Metrics) -> None:
    metrics.supervised("placement")
    assert value(metrics, "trueup_restarts_total", stream="placement") == 0


def test_a_source_that_is_not_listed_any_more_has_no_state(metrics: Metrics) -> None:
    """The source `racks` is only listed while it has a problem, if racks are not asked of a script."""
    status = healthy_status()
    racks = {"name": "racks", "state": "slow", "age_ms": 0, "detail": "the last racks apply"}
    metrics.status({**status, "sources": [*status["sources"], racks]})
    metrics.status(status)
    left = [value(metrics, f"trueup_{name}", source="racks") for name in ("source_state", "observation_age_seconds")]
    assert left == [None, None]


def test_the_age_of_a_source_that_was_never_observed_counts_from_the_start(metrics: Metrics) -> None:
    never = {"name": "zookeeper", "state": "down", "age_ms": None, "detail": ""}
    metrics.status({**healthy_status(), "now_ms": 130_000, "started_ms": 5_000, "sources": [never]})
    assert value(metrics, "trueup_observation_age_seconds", source="zookeeper") == 125


def linked() -> Metrics:
    """Metrics of an application with a link."""
    metrics = all_metrics("east")
    metrics.of(LinkMetrics).declare(["east-west"])
    return metrics


def test_links_have_a_state_lag_and_heartbeat() -> None:
    metrics = linked()
    metrics.status(healthy_status() | {"links": [link_row("east-west", state="stalled", lag_records=9, lag_ms=65_000)]})
    result = {
        "trueup_link_lag_records": 9.0,
        "trueup_link_lag_seconds": 65.0,
        "trueup_link_heartbeat_age_seconds": 3.0,
        "trueup_link_partitions": 2.0,
    }
    states = [value(metrics, "trueup_link_state", link="east-west", state=s) for s in ("up", "stalled")]
    assert ({name: value(metrics, name, link="east-west") for name in result}, states) == (result, [0, 1])


def test_an_unknown_lag_is_no_number() -> None:
    metrics = linked()
    metrics.status(healthy_status() | {"links": [link_row("east-west", state="starting", lag_records=-1, lag_ms=-1)]})
    found = [value(metrics, f"trueup_link_lag_{unit}", link="east-west") for unit in ("records", "seconds")]
    assert all(map(math.isnan, found)), found


def test_what_became_of_records_is_counted_from_zero() -> None:
    metrics, source = linked(), LogId("orders", 0)
    before = value(metrics, "trueup_link_records_total", link="east-west", outcome="lost")
    metrics.of(LinkMetrics).copied("east-west", Progress(source, source, Position(7), copied=5, lost=2, bytes=100))
    after = [value(metrics, "trueup_link_records_total", link="east-west", outcome=o) for o in ("copied", "lost")]
    assert (before, after, value(metrics, "trueup_link_bytes_total")) == (0, [5, 2], 100)


def test_counters_without_labels_begin_at_zero(metrics: Metrics) -> None:
    assert value(metrics, "trueup_zookeeper_reconnects_total") == 0


def test_names_contain_their_units(metrics: Metrics) -> None:
    counted = [f.name for f in metrics.families if f.kind == "counter" and not f.name.endswith("_total")]
    timed = [f.name for f in metrics.families if f.kind == "histogram" and not f.name.endswith(("_seconds", "_bytes"))]
    odd = [f.name for f in metrics.families if re.search(r"_(ms|millis|minutes|kb|mb)(_|$)", f.name)]
    assert (counted, timed, odd) == ([], [], [])
