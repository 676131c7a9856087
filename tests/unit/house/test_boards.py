"""Dashboards and alerts use existing metrics and labels in their units, and link to existing runbooks."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.cli.fake_rows import healthy_status
from tests.unit.house.test_docs import anchors
from trueup.streams.catalog import all_metrics

ROOT = Path(__file__).parents[3]
BOARDS = sorted((ROOT / "conf" / "grafana").glob("*.json"))
ALERTS = [
    rule
    for group in yaml.safe_load((ROOT / "conf/prometheus/alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
OF_PROMETHEUS = {"up"}
TARGET_LABELS = {"job", "instance"}
UNITS = {"_seconds": {"s"}, "_bytes": {"bytes"}}


def known() -> dict[str, set[str]]:
    """Labels by name of every exported series."""
    metrics = all_metrics()
    metrics.status(healthy_status())
    found: dict[str, set[str]] = {"up": set()}
    for family in metrics.families:
        names = (
            [f"{family.name}{end}" for end in ("_bucket", "_sum", "_count")]
            if family.kind == "histogram"
            else [family.name]
        )
        found |= {
            name: {"cluster", *family.labels} | ({"le"} if family.kind == "histogram" else set()) for name in names
        }
    process = {m.name: set() for m in metrics.registry.collect() if m.name.startswith("process_")}
    return found | process | {f"{name}_total": labels for name, labels in process.items()}


KNOWN = known()


def names(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:trueup_\w+|process_\w+|up)\b", re.sub(r'"[^"]*"', '""', expression)))


def labels(expression: str) -> set[str]:
    matched = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", expression)
    grouped = [word for group in re.findall(r"\bby\s*\(([^)]*)\)", expression) for word in re.findall(r"\w+", group)]
    return {*matched, *grouped}


def panels(board: Path) -> Iterator[dict[str, Any]]:
    yield from (panel for panel in json.loads(board.read_text())["panels"] if panel["type"] != "row")


PANELS = [pytest.param(panel, id=f"{board.stem}: {panel['title']}") for board in BOARDS for panel in panels(board)]
EXPRESSIONS = [
    *(
        pytest.param(target["expr"], id=f"{board.stem}: {panel['title']} {target['refId']}")
        for board in BOARDS
        for panel in panels(board)
        for target in panel["targets"]
    ),
    *(pytest.param(rule["expr"], id=rule["alert"]) for rule in ALERTS),
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_names_metrics_and_labels_that_exist(expression: str) -> None:
    found = names(expression)
    allowed = set[str]().union(TARGET_LABELS, *(KNOWN.get(name, set()) for name in found))
    assert (found - set(KNOWN), labels(expression) - allowed, bool(found)) == (set(), set(), True)


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_has_the_unit_of_what_it_shows(panel: dict[str, Any]) -> None:
    unit = panel["fieldConfig"]["defaults"].get("unit")
    for target in panel["targets"]:
        expression = target["expr"]
        for name in names(expression):
            counted = name.endswith(("_total", "_count")) or not re.search(r"_(seconds|bytes)(_bucket|_sum)?$", name)
            wanted = (
                {"short", "ops", "cps", "Bps", "percentunit", None}
                if counted
                else UNITS["_bytes" if "_bytes" in name else "_seconds"]
            )
            assert unit in wanted, name


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_has_a_description(panel: dict[str, Any]) -> None:
    assert panel["description"].endswith(".")


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.stem)
def test_a_board_can_be_imported(board: Path) -> None:
    found = json.loads(board.read_text())
    ids = [panel["id"] for panel in found["panels"]]
    cells = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in found["panels"]]
    wide = [p["title"] for p in found["panels"] if p["gridPos"]["x"] + p["gridPos"]["w"] > 24]
    assert (len(set(ids)), len(set(cells)), wide) == (len(ids), len(cells), [])


def test_provisioning_declares_files_and_a_data_source_that_boards_can_choose() -> None:
    kinds = [
        yaml.safe_load((ROOT / f"conf/grafana/provisioning/{name}/trueup.yaml").read_text())[key][0]["type"]
        for name, key in (("dashboards", "providers"), ("datasources", "datasources"))
    ]
    chosen = {board.stem: json.loads(board.read_text())["templating"]["list"][0]["query"] for board in BOARDS}
    assert (kinds, set(chosen.values())) == (["file", "prometheus"], {"prometheus"})


def test_boards_are_distinguished() -> None:
    assert len({json.loads(board.read_text())["uid"] for board in BOARDS}) == len(BOARDS) == 7


def test_every_metric_is_on_a_board() -> None:
    shown = set[str]().union(
        *(names(target["expr"]) for board in BOARDS for p in panels(board) for target in p["targets"])
    )
    families = {family.name for family in all_metrics().families}
    assert families - {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown} == set()


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_has_a_remedy(rule: dict[str, Any]) -> None:
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert (rule["labels"]["severity"] in {"critical", "warning", "info"}, "for" in rule) == (True, True)
    assert (anchor, anchor in anchors(ROOT / page)) == (rule["alert"].lower(), True)


def test_every_runbook_has_an_alert() -> None:
    written = {anchor for anchor in anchors(ROOT / "docs" / "operations.md") if anchor.startswith("trueup")}
    assert written == {rule["alert"].lower() for rule in ALERTS}


def test_blind_is_not_green() -> None:
    critical = {rule["alert"] for rule in ALERTS if rule["labels"]["severity"] == "critical"}
    assert {"TrueupDown", "TrueupNotReady", "TrueupObservationStale"} <= critical
