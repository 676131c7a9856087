"""Formats of lists, and --watch."""

import json

import click
import pytest
import yaml

from tests.unit.cli.conftest import Run
from trueup.state.common.errors import Retry
from trueup.streams.terminal import out


def test_names_are_one_per_line(run: Run) -> None:
    listed = json.loads(run("get", "bookies", "-o", "json").out)
    assert run("get", "bookies", "-o", "name").out.splitlines() == [row["bookie"] for row in listed]


def test_yaml_has_what_json_has(run: Run) -> None:
    assert yaml.safe_load(run("get", "bookies", "-o", "yaml").out) == json.loads(
        run("get", "bookies", "-o", "json").out
    )


def test_a_wide_table_shortens_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    reasons = [row["reason"] for row in json.loads(run("get", "findings", "-o", "json").out)]
    found = run("get", "findings", "-o", "wide").out
    assert all(reason in found for reason in reasons), found


def test_watch_prints_what_is_new(capsys: pytest.CaptureFixture[str]) -> None:
    answers: list[list[str] | Retry] = [["A", "x"], Retry("an answer", "none", "retry"), ["A", "x", "y"]]

    def listed() -> None:
        answer = answers.pop(0)
        if isinstance(answer, Retry):
            raise answer
        click.echo("\n".join(answer))

    def slept(_seconds: float) -> None:
        if not answers:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        out.watch(listed, 1.0, slept)
    printed = capsys.readouterr()
    assert (printed.out.split(), "expected an answer" in printed.err) == (["A", "x", "y"], True)


def test_watch_prints_json_whole_if_it_differs(capsys: pytest.CaptureFixture[str]) -> None:
    answers = ["[\n1\n]", "[\n1\n]", "[\n2\n]"]

    def slept(_seconds: float) -> None:
        if not answers:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        out.watch(lambda: click.echo(answers.pop(0)), 1.0, slept)
    assert capsys.readouterr().out == "[\n1\n]\n[\n2\n]\n"
