"""Formats of lists, and --watch."""

import json

import click
import pytest
import yaml

from tests.unit.cli.conftest import Run
from trueup.state.common.errors import Retry
from trueup.streams.cli.commands.get import get
from trueup.streams.cli.main import cli
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


LISTS = [*(f"get {name}" for name in get.list_commands(click.Context(get))), "plan", "explain", "config get", "what-if"]


@pytest.mark.parametrize("words", LISTS)
def test_every_list_has_all_formats_and_watch(words: str) -> None:
    command: click.Command = cli
    for word in words.split():
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), word)
        assert found is not None
        command = found
    options = {option.name: option for option in command.params}
    assert isinstance(options["output"].type, click.Choice)
    assert ({*options["output"].type.choices}, "watch" in options) == ({"table", "wide", "json", "yaml", "name"}, True)


def test_the_names_of_a_plan_can_be_approved(run: Run) -> None:
    planned = json.loads(run("plan", "-o", "json").out)
    assert run("plan", "-o", "name").out.splitlines() == [row["id"] for row in planned]


def test_settings_and_rules_have_names(run: Run) -> None:
    keys = json.loads(run("config", "get", "-o", "json").out)["live"]
    rules = json.loads(run("explain", "-o", "json").out)
    names = [run(*words, "-o", "name").out.splitlines() for words in (("config", "get"), ("explain",))]
    assert names == [[*keys], [rule["id"] for rule in rules]]
