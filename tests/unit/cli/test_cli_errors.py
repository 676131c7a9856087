"""Invalid command lines: what they say to people and to programs."""

import ast
import json
import logging
from functools import partial
from pathlib import Path
from typing import NoReturn

import click
import pytest

from trueup.streams.cli.main import invoke
from trueup.streams.terminal import codes, out

REPOSITORY = Path(__file__).parents[3]
NOWHERE = ("--api", "http://127.0.0.1:1")
SPEAKERS = {"out.py", "main.py", "read.py", "token.py"}
"""Modules that write to stderr: others use `out.aside` and `out.progress`, which know who reads it."""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("QUIET_S", "TICK_S", "REPEAT_S"):
        monkeypatch.setattr(out, name, 0.0)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["stauts"], "'status'"),
        (["get", "leders"], "'ledgers'"),
        (["describe", "ledgr", "1"], "'ledger'"),
        (["link", "resett"], "'reset'"),
        (["status", "--outpt", "json"], "'--output'"),
    ],
)
def test_a_typing_error_gets_a_suggestion(words: list[str], meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(words) == codes.USAGE
    err = capsys.readouterr().err
    assert ("Did you mean" in err, meant in err) == (True, True), err


@pytest.mark.parametrize(
    ("words", "expected", "found", "todo"),
    [
        (["stauts", "-o", "json"], "a valid command", "status", "trueup --help"),
        (["get", "findings", "--limit", "x", "-o", "json"], "a valid command", "--limit", "trueup get findings --help"),
        (
            ["config", "set", "placement.mode", "-o", "json"],
            "VALUE or --default",
            "neither",
            "trueup config set --help",
        ),
        (["explain", "nonsense", "-o", "json"], "RULE: a rule", "'nonsense'", "trueup explain --help"),
        (
            ["config", "check", "-o", "json", "--set", "x"],
            "--set: section.key=value",
            "'x'",
            "trueup config check --help",
        ),
    ],
)
def test_for_programs_it_has_the_fields_of_every_error(
    words: list[str], expected: str, found: str, todo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(words) == codes.USAGE
    error = json.loads(capsys.readouterr().err)["error"]
    assert sorted(error) == ["code", "expected", "found", "todo"]
    assert (expected == error["expected"], found in error["found"], todo in error["todo"]) == (True, True, True), error


def test_a_check_of_the_configuration_speaks_to_programs(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["config", "check", "-o", "json", "--set", "cluster.zookeeper=127.0.0.1:2181"]
    codes_of = [invoke(words), invoke([*words, "--set", "placement.max_mark=1"])]
    out, err = capsys.readouterr()
    (problem,) = json.loads(err)["error"]["problems"]
    assert (codes_of, json.loads(out)) == ([codes.OK, codes.USAGE], {"valid": True})
    assert "expected a known key; found this unknown key; did you mean max_marks?" in problem


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "words",
    [
        ("status", "--wait", "0.6", *NOWHERE),
        ("status", *NOWHERE),
        ("get", "findings", *NOWHERE),
        ("link", "refill", "east-west", "--yes", *NOWHERE),
        ("sandbox", "status"),
        ("sandbox", "kill", "bookie1"),
        ("sandbox", "write"),
        ("what-if", "rack", "/rack1", *NOWHERE),
        ("support", "bundle", "--to", "missing/bundle.tar.gz", *NOWHERE),
    ],
    ids=" ".join,
)
def test_a_command_that_fails_prints_one_object_for_programs(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoke([*words, "-o", "json"]) != codes.OK
    printed = capsys.readouterr()
    assert (sorted(json.loads(printed.err)["error"]), printed.out) == (["code", "expected", "found", "todo"], "")


def test_a_watch_for_programs_waits_in_silence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_seconds: float) -> NoReturn:
        raise click.Abort

    monkeypatch.setattr(out, "watch", partial(out.watch, sleep=interrupted))
    assert invoke(["get", "findings", "-w", "-o", "json", *NOWHERE]) == codes.INTERRUPTED
    assert json.loads(capsys.readouterr().err)["error"]["code"] == codes.INTERRUPTED


@pytest.mark.parametrize("program", [True, False])
def test_warnings_of_libraries_are_not_for_programs(program: bool, capsys: pytest.CaptureFixture[str]) -> None:
    warning = logging.makeLogRecord({"msg": "a socket closed", "levelno": logging.WARNING})
    with out.reader(program):
        assert logging.lastResort is not None
        logging.lastResort.handle(warning)
    assert capsys.readouterr().err == ("" if program else "a socket closed\n")


def test_nothing_else_is_written_to_stderr() -> None:
    speaking = {
        path.name
        for layer in ("streams", "sandbox")
        for path in (REPOSITORY / layer).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and any(each.arg == "err" for each in node.keywords)
    }
    assert speaking == SPEAKERS
