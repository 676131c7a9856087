"""The command line without a running application: help, errors, exit codes, and modules that are not imported."""

import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from trueup.connectors.embedded.processes import free_port
from trueup.sandbox.commands.sandbox import last_line
from trueup.state.common.errors import BadBytes, BadSettings, Refused, Retry, Stop, Unknown
from trueup.streams.catalog import sections
from trueup.streams.cli.main import cli, invoke
from trueup.streams.config.file import reference
from trueup.streams.terminal import codes
from trueup.streams.terminal.options import default_api

Run = Callable[..., tuple[int, str, str]]
HEAVY = {"pyspark", "confluent_kafka", "kazoo", "flask", "numpy", "pandas", "pyarrow", "fastavro", "rich", "jgo"}
SLOW = {
    *HEAVY,
    "urllib3",
    "yaml",
    "re2",
    "importlib.metadata",
    "importlib.resources",
    "logging",
    "trueup.connectors",
    "trueup.state.settings.settings",
    "trueup.state.common.options",
    "trueup.state.common.rules",
}
"""Modules that take longer to import than a request takes."""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def command(*words: str) -> tuple[int, str, str]:
        code = invoke(words)
        return code, *capsys.readouterr()

    return command


def commands(group: click.Group = cli, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


NAMED = {" ".join(path): command for path, command in commands()}


def loaded_by(*words: str) -> set[str]:
    """The modules that a command line imports, with the packages that contain them."""
    program = f"import sys; from trueup.streams.cli.main import invoke; invoke({words!r}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_help_loads_nothing_heavy() -> None:
    assert loaded_by("--help") & HEAVY == set()


def test_status_loads_no_other_command_and_nothing_that_only_others_need() -> None:
    loaded = loaded_by("status", "--api", "http://127.0.0.1:1")
    commands = {name for name in loaded if name.startswith("trueup.") and "commands." in f"{name}."}
    assert (commands, loaded & SLOW) == ({"trueup.streams.cli.commands", "trueup.streams.cli.commands.status"}, set())


def test_a_command_that_asks_the_application_loads_no_spark() -> None:
    loaded = loaded_by("get", "ledgers", "--api", "http://127.0.0.1:1")
    assert {"pyspark", "confluent_kafka", "flask"} & loaded == set()


@pytest.mark.parametrize("name", NAMED)
def test_every_command_is_documented_with_an_example(name: str) -> None:
    command = NAMED[name]
    assert command.help
    assert "Example" in command.help
    assert command.get_short_help_str(200).endswith(".")


@pytest.mark.parametrize("name", NAMED)
def test_every_option_is_documented(name: str) -> None:
    silent = [p.name for p in NAMED[name].params if isinstance(p, click.Option) and not p.help]
    assert silent == []


@pytest.mark.parametrize("name", NAMED)
def test_help_fits_a_terminal(run: Run, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run(*name.split(), "--help")
    assert (code, [line for line in out.splitlines() if len(line) > 100]) == (0, [])


def test_the_first_help_lists_exit_codes(run: Run) -> None:
    assert "Exit codes:" in run("--help")[1]


def test_version(run: Run) -> None:
    assert run("--version")[1].startswith("trueup ")


@pytest.mark.parametrize("words", [["frobnicate"], ["get", "ledgers", "--nope"], ["get", "things"], ["describe"]])
def test_wrong_usage(run: Run, words: list[str]) -> None:
    assert run(*words)[0] == codes.USAGE


def test_no_application(run: Run) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    code, out, err = run("get", "ledgers", "--api", address)
    assert (code, out, f"expected a response of Trueup at {address}" in err, "Connection refused" in err) == (
        4,
        "",
        True,
        True,
    )


def test_a_wait_in_vain(run: Run) -> None:
    assert run("status", "--wait", "0.1", "--api", f"127.0.0.1:{free_port()}")[0] == codes.UNREACHABLE


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BadSettings(["a: b"]), 2),
        (Refused("a", "b", "c"), 5),
        (Retry("a", "b", "c"), 4),
        (Unknown("a", "b", "c"), 4),
        (Stop("a", "b", "c"), 1),
        (BadBytes("x", 1, "a", "b"), 1),
        (codes.ApiError(409, "a", "b", "c"), 5),
        (codes.ApiError(500, "a", "b", "c"), 1),
    ],
)
def test_exit_codes(error: Stop, code: int) -> None:
    assert codes.code_of(error) == code


def test_run_reports_all_problems_of_the_configuration(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "trueup.yaml"
    path.write_text("placement: {mode: loud}\nhttp: {port: x}\n")
    code, out, err = run("run", "-c", str(path))
    assert (code, out) == (2, "")
    assert [line.strip().partition(":")[0] for line in err.splitlines()[1:]] == [
        "cluster.zookeeper",
        "placement.mode",
        "http.port",
    ]


def test_run_with_a_flag_that_is_none(run: Run) -> None:
    assert run("run", "--set", "placement.mode")[0] == codes.USAGE


def test_config_check(run: Run) -> None:
    assert run("config", "check", "--set", "cluster.zookeeper=zk:2181")[:2] == (0, "The configuration is valid.\n")


def test_config_reference_is_the_file_that_ships(run: Run) -> None:
    assert run("config", "reference")[1] == reference(sections())


def test_explain_needs_no_application(run: Run) -> None:
    assert json.loads(run("explain", "no-walk", "-o", "json")[1])["verdict"] == "blocked"


def test_a_sandbox_that_is_not_there(run: Run, tmp_path: Path) -> None:
    code, out, err = run("sandbox", "status", "--dir", str(tmp_path / "none"))
    assert (code, out, "expected a sandbox in" in err) == (1, "", True)


def test_a_detached_start_shows_the_progress_in_its_log(tmp_path: Path) -> None:
    (log := tmp_path / "sandbox.log").write_text(
        "starting the sandbox (2 s)\nwaiting for bookie1; servers ready: 1 of 9 (12 s)\n"
    )
    assert last_line(log) == "waiting for bookie1; servers ready: 1 of 9"


@pytest.mark.parametrize("racks", ["x", "", "0", "3,", "99,99"])
def test_a_sandbox_of_no_sensible_size(run: Run, tmp_path: Path, racks: str) -> None:
    assert run("sandbox", "up", "--dir", str(tmp_path / "s"), "--racks", racks)[0] == codes.USAGE


@pytest.mark.parametrize(
    ("env", "address"),
    [
        ({}, "http://127.0.0.1:8480"),
        ({"TRUEUP__HTTP__PORT": "9"}, "http://127.0.0.1:9"),
        ({"TRUEUP__HTTP__TLS_CERTIFICATE": "tls.crt"}, "https://127.0.0.1:8480"),
        ({"TRUEUP__HTTP__HOST": "0.0.0.0"}, "http://127.0.0.1:8480"),
        ({"TRUEUP__HTTP__HOST": "h"}, "http://h:8480"),
    ],
)
def test_the_address_follows_the_settings_of_the_environment(env: dict[str, str], address: str) -> None:
    assert default_api(env) == address


def test_versions_are_those_of_the_installed_packages(run: Run) -> None:
    code, printed, _ = run("version", "-o", "json")
    assert (code, json.loads(printed)["pyspark"]) == (0, importlib.metadata.version("pyspark"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_completion(shell: str) -> None:
    program = [sys.executable, "-c", "from trueup.streams.cli.main import cli; cli(prog_name='trueup')"]
    environment = {**os.environ, "_TRUEUP_COMPLETE": f"{shell}_source"}
    done = subprocess.run(program, capture_output=True, text=True, check=False, env=environment)
    assert "_TRUEUP_COMPLETE" in done.stdout


def test_resources_are_completed() -> None:
    program = [sys.executable, "-c", "from trueup.streams.cli.main import main; main()"]
    environment = {**os.environ, "_TRUEUP_COMPLETE": "bash_complete", "COMP_WORDS": "trueup get boo", "COMP_CWORD": "2"}
    done = subprocess.run(program, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.split() == ["plain,bookies"]
