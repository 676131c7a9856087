"""Invalid command lines: what they say to people and to programs."""

import json

import pytest

from trueup.streams.cli.main import invoke
from trueup.streams.terminal import codes


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
