"""Every alert has cases for promtool in which it fires and in which it does not, with series that Trueup exports."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.promtool import promtool
from tests.unit.house.recorded import record
from tests.unit.house.test_boards import ALERTS, KNOWN, ROOT, TARGET_LABELS

FILES = sorted((ROOT / "tests" / "prometheus" / "alerts").glob("*.yml"))
NAMES = [rule["alert"] for rule in ALERTS]
OF_FIXED_TABLES = {"mode", "outcome", "reason", "rule", "source", "stage", "state", "status", "verdict"}
CASES: list[dict[str, Any]] = [case for file in FILES for case in yaml.safe_load(file.read_text())["tests"]]
SERIES = sorted({(each["series"], case["name"]) for case in CASES for each in case["input_series"]})


def cases(alert: str, fires: bool) -> list[dict[str, Any]]:
    """Cases that expect the alert at some time, or at no time."""
    of_alert = [
        (case, [each["exp_alerts"] for each in case["alert_rule_test"] if each["alertname"] == alert]) for case in CASES
    ]
    return [case for case, expected in of_alert if expected and any(expected) == fires]


@cache
def exported() -> set[tuple[str, str, str]]:
    """Name, label and value of every series."""
    return {(each.name, *label) for each in record() for label in each.labels.items()}


def test_the_rules_are_valid() -> None:
    code, output = promtool("check", "rules", "--lint=all", "--lint-fatal", ROOT / "conf/prometheus/alerts.yml")
    assert code == 0, output


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_alerts_fire_as_the_cases_expect(file: Path) -> None:
    code, output = promtool("test", "rules", file)
    assert code == 0, output


@pytest.mark.parametrize("alert", NAMES)
def test_an_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not(alert: str) -> None:
    assert [bool(cases(alert, fires)) for fires in (True, False)] == [True, True]


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_a_case_shows_that_an_alert_waits(rule: dict[str, Any]) -> None:
    """A case in which the alert fires expects none shortly before."""
    early = [case["name"] for case in cases(rule["alert"], True) if case["alert_rule_test"][0]["exp_alerts"]]
    assert early == []


@pytest.mark.parametrize("series", [pytest.param(series, id=f"{case}: {series}") for series, case in SERIES])
def test_a_series_of_a_case_is_exported(series: str) -> None:
    name = series.partition("{")[0]
    labels = dict(re.findall(r'(\w+)="([^"]*)"', series))
    wanted = TARGET_LABELS if name == "up" else TARGET_LABELS | KNOWN[name]
    strange = {(name, *each) for each in labels.items() if each[0] in OF_FIXED_TABLES} - exported()
    assert (set(labels), strange) == (wanted, set())
