"""Formats of lists, and --watch."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click
import pytest
import yaml

from tests.unit.cli.conftest import Run
from trueup.sandbox.control import Remote
from trueup.state.common.errors import Retry
from trueup.streams.cli.commands import doctor
from trueup.streams.cli.main import cli, invoke
from trueup.streams.runtime.checks import fail, ok
from trueup.streams.terminal import codes, out


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


ONE = {"status", "read", "files", "version", "config check", "support bundle"}
"""Commands about one thing: they list nothing, as those of `trueup describe`."""
ACTING = {"drain", "undrain", "approve", "config set", "sandbox down", "sandbox kill", "sandbox start", "sandbox write"}
"""Commands that change something, as those of `trueup delete`, `trueup link` and `trueup topic`."""
GROUPS = {"describe", "delete", "link", "topic"}
FORMATS = {"table", "wide", "json", "yaml", "name"}


def with_output(command: click.Command = cli, *words: str) -> Iterator[tuple[str, dict[str | None, click.Parameter]]]:
    """The options of each command that has -o, by its words."""
    options = {option.name: option for option in command.params}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from with_output(found, *words, name)
    elif "output" in options and words[0] not in GROUPS:
        yield " ".join(words), options


LISTS = {words: options for words, options in with_output() if words not in ONE | ACTING}


@pytest.mark.parametrize("words", LISTS)
def test_every_list_has_all_formats(words: str) -> None:
    kind = LISTS[words]["output"].type
    assert isinstance(kind, click.Choice)
    assert {*kind.choices} == FORMATS


@pytest.mark.parametrize("words", [words for words in LISTS if words != "doctor"])  # whose checks last too long for it
def test_every_list_has_watch(words: str) -> None:
    assert "watch" in LISTS[words]


def test_commands_that_are_no_lists_exist() -> None:
    assert {words for words, _ in with_output()} >= ONE | ACTING


@pytest.fixture
def sandbox(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a running sandbox responds."""
    server = {"alive": True, "pid": 7, "log": "server.log"}
    answer: dict[str, Any] = {
        "zookeeper": "127.0.0.1:2181",
        "autorecovery": [],
        "bookies": {"bookie1": {"id": "127.0.0.1:3181", "rack": "/rack1"}},
        "servers": {"zookeeper": server, "bookie1": server},
    }
    monkeypatch.setattr(Remote, "request", lambda *_: answer)
    return answer


def test_servers_of_the_sandbox_have_the_formats_of_lists(
    sandbox: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    def printed(form: str) -> str:
        assert invoke(["sandbox", "status", "-o", form]) == codes.OK
        return capsys.readouterr().out

    assert (json.loads(printed("json")), yaml.safe_load(printed("yaml"))) == (sandbox, sandbox)
    assert printed("name").split() == ["zookeeper", "bookie1"]
    assert [line.split()[:2] for line in printed("wide").splitlines()[1:]] == [["zookeeper", "up"], ["bookie1", "up"]]


def test_checks_of_doctor_have_the_formats_of_lists(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checks = [ok("java", "17"), fail("jars", "none", "fetch them")]
    monkeypatch.setattr(doctor, "examined", lambda *_: iter(checks))

    def printed(*words: str) -> str:
        assert invoke(["doctor", *words, "--set", "cluster.zookeeper=zk:2181"]) == codes.ATTENTION
        return capsys.readouterr().out

    assert yaml.safe_load(printed("-o", "yaml")) == json.loads(printed("-o", "json")) == [*map(asdict, checks)]
    assert (printed("-o", "name"), printed("-o", "name", "--all")) == ("jars\n", "java\njars\n")
    assert printed("-o", "wide") == printed()


def test_the_names_of_a_plan_can_be_approved(run: Run) -> None:
    planned = json.loads(run("plan", "-o", "json").out)
    assert run("plan", "-o", "name").out.splitlines() == [row["id"] for row in planned]


def test_settings_and_rules_have_names(run: Run) -> None:
    keys = json.loads(run("config", "get", "-o", "json").out)["live"]
    rules = json.loads(run("explain", "-o", "json").out)
    names = [run(*words, "-o", "name").out.splitlines() for words in (("config", "get"), ("explain",))]
    assert names == [[*keys], [rule["id"] for rule in rules]]
