"""Every query of the boards is accepted by promtool, and returns samples of what the application exports."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.promtool import promtool
from tests.unit.house.recorded import CLUSTER, MINUTES, exposition, record
from tests.unit.house.test_boards import BOARDS, KNOWN, names, panels

VARIABLES = {"$__rate_interval": "5m", "$cluster": CLUSTER}
"""What Grafana replaces, and one value of each."""

OF_CLUSTERS = {"cluster", "fleet", "deletion"}
"""Boards that show clusters and not instances."""


def queries(board: Path) -> list[str]:
    """Queries with values for variables."""
    found = [str(target["expr"]) for panel in panels(board) for target in panel["targets"]]
    for variable, value in VARIABLES.items():
        found = [query.replace(variable, value) for query in found]
    return found


def test_metrics_are_named_as_prometheus_advises() -> None:
    assert promtool("check", "metrics", given=exposition()) == (0, "")


def checked(command: str, content: dict[str, Any], folder: Path) -> tuple[int, str]:
    file = folder / "board.yml"
    file.write_text(yaml.safe_dump(content))
    return promtool(command, "rules", file)


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.stem)
def test_queries_have_no_other_variables(board: Path) -> None:
    assert [query for query in queries(board) if "$" in query] == []


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.stem)
def test_queries_can_be_parsed(board: Path, tmp_path: Path) -> None:
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries(board))]
    code, output = checked("check", {"groups": [{"name": board.stem, "rules": rules}]}, tmp_path)
    assert code == 0, output


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.stem)
def test_queries_return_numbers(board: Path, tmp_path: Path) -> None:
    """Comparison with -Inf removes samples that are not a number."""
    code, output = evaluated("count(({}) >= -Inf) > bool 0", board, tmp_path)
    assert code == 0, output


@pytest.mark.parametrize(
    "board", [board for board in BOARDS if board.stem in OF_CLUSTERS], ids=lambda board: board.stem
)
def test_a_standby_adds_no_series_to_those_of_its_leader(board: Path, tmp_path: Path) -> None:
    """Every instance exports the levels of the cluster; those of a standby are 0."""
    code, output = evaluated("count by (instance) ({}) > bool 0", board, tmp_path)
    assert code == 0, output


def evaluated(form: str, board: Path, folder: Path) -> tuple[int, str]:
    """Whether each query of the board, in this form, returns 1 without labels at the end of the recording."""
    end = {"eval_time": f"{MINUTES}m", "exp_samples": [{"labels": "{}", "value": 1}]}
    used = set[str]().union(*map(names, queries(board)))
    content = {
        "interval": "1m",
        "input_series": [each.series() for each in record() if each.name in used],
        "promql_expr_test": [{"expr": form.format(query), **end} for query in queries(board)],
    }
    return checked("test", {"tests": [content]}, folder)


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.stem)
def test_variables_list_labels_that_exist(board: Path) -> None:
    listed = [
        each["query"]["query"] for each in json.loads(board.read_text())["templating"]["list"] if "refresh" in each
    ]
    named = [pair for query in listed for pair in re.findall(r"^label_values\((\w+), (\w+)\)$", query)]
    assert [label in KNOWN[name] for name, label in named] == [True] * len(listed)
