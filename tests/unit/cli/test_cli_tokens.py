"""Tokens on the command line: creating them, sending them, and what a refused command says."""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from flask import Flask, request

from tests.certificates import certify
from tests.configuration import parse
from tests.unit.cli.fake_engine import FakeEngine
from tests.unit.cli.test_cli import CommandResult
from trueup.state.common.errors import BadSettings
from trueup.state.settings.roles import Role
from trueup.state.settings.tokens import digest_of, find, line_of
from trueup.state.settings.tokens import parse as lines
from trueup.streams.catalog import all_metrics
from trueup.streams.cli import machine
from trueup.streams.cli.main import invoke
from trueup.streams.config import check
from trueup.streams.terminal import codes, options
from trueup.streams.terminal.client import Api, ApiTarget
from trueup.streams.web.access import Access, TokenFile
from trueup.streams.web.api import Server, create_app, serve
from trueup.streams.web.tls import Certificate

Run = Callable[..., CommandResult]
VIEWER, ADMIN = "token-of-viewer", "token-of-admin"


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(f"{line_of('vera', Role.VIEWER, VIEWER)}\n{line_of('ada', Role.ADMIN, ADMIN)}\n")
    return path


@pytest.fixture
def server(tokens: Path) -> Iterator[Server]:
    access = Access(TokenFile(tokens), lambda _: None)
    made = serve(create_app(FakeEngine().drill(), all_metrics(), access), "127.0.0.1", 0)
    yield made
    made.stop()


@pytest.fixture
def run(server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setenv("TRUEUP_API", f"http://127.0.0.1:{server.port}")
    for name in ("TRUEUP_TOKEN", "TRUEUP_TOKEN_FILE", "TRUEUP_CA"):
        monkeypatch.delenv(name, raising=False)

    def command(*words: str) -> CommandResult:
        code = invoke(words)
        return CommandResult(code, *capsys.readouterr())

    return command


def test_a_new_token_is_on_stdout_and_its_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["token", "new", "alice", "--role", "approver"]) == codes.OK
    out, err = capsys.readouterr()
    token, (found, problems) = out.strip(), lines(err)
    made = find(found, digest_of(token))
    assert (made.name if made else "", made.role if made else None, problems) == ("alice", Role.APPROVER, [])
    assert (token in err, len(token) >= 43) == (False, True)


def test_a_token_in_a_file_can_be_read_by_nobody_else(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["token", "new", "alice", "--role", "viewer", "--out", str(tmp_path / "alice.token")]
    before = os.umask(0)
    try:
        codes_of = [invoke(words), invoke(words)]
    finally:
        os.umask(before)
    out, err = capsys.readouterr()
    file = tmp_path / "alice.token"
    found = find(lines(out)[0], digest_of(file.read_text().strip()))
    assert (found is not None, file.stat().st_mode & 0o777) == (True, 0o600)
    assert (codes_of[0], codes_of[1] != codes.OK, "a new file" in err) == (codes.OK, True, True)


@pytest.mark.parametrize(("mode", "code"), [(0o644, codes.ATTENTION), (0o640, codes.ATTENTION), (0o600, codes.OK)])
def test_a_token_is_not_written_to_a_file_that_others_read(tmp_path: Path, mode: int, code: int) -> None:
    file = tmp_path / "token"
    file.touch()
    file.chmod(mode)
    with file.open("w") as out:
        words = [sys.executable, "-m", "trueup.streams.cli.main", "token", "new", "alice", "--role", "viewer"]
        assert subprocess.run(words, stdout=out, stderr=subprocess.PIPE, check=False).returncode == code
    assert bool(file.read_text()) == (code == codes.OK)


def test_every_new_token_is_another_one(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        invoke(["token", "new", "alice", "--role", "viewer"])
    assert len(set(capsys.readouterr().out.split())) == 2


@pytest.mark.parametrize("words", [["a b", "--role", "viewer"], ["alice", "--role", "root"], ["alice"]])
def test_a_token_without_a_valid_name_and_role_is_not_made(words: list[str]) -> None:
    assert invoke(["token", "new", *words]) == codes.USAGE


def test_a_command_without_a_token_says_how_to_send_one(run: Run) -> None:
    result = run("status")
    assert (result.code, "no token" in result.err, "--token-file" in result.err) == (codes.REFUSED, True, True)


def test_a_command_with_a_wrong_token_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUEUP_TOKEN", "wrong")
    result = run("get", "findings", "-o", "json")
    found = json.loads(result.err)["error"]
    assert (result.code, found["expected"], found["found"]) == (codes.REFUSED, "a valid token", "another one")


def test_a_command_of_a_role_that_is_too_low_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUEUP_TOKEN", VIEWER)
    result = run("config", "set", "placement.mode", "enforce")
    assert (run("status").code, result.code) == (codes.ATTENTION, codes.REFUSED)
    assert "role admin" in result.err
    assert "vera, whose role is viewer" in result.err


@pytest.mark.parametrize("way", ["option", "environment", "file of the environment"])
def test_a_token_is_sent(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str) -> None:
    file = tmp_path / "ada"
    file.write_text(f"{ADMIN}\n")
    if way == "environment":
        monkeypatch.setenv("TRUEUP_TOKEN", ADMIN)
    elif way == "file of the environment":
        monkeypatch.setenv("TRUEUP_TOKEN_FILE", str(file))
    words = ["--token-file", str(file)] if way == "option" else []
    assert run("config", "set", "placement.mode", "approve", *words).out == "placement.mode is approve\n"


def test_a_token_is_sent_over_tls(tokens: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    access = Access(TokenFile(tokens), lambda _: None)
    certificate = Certificate(*certify(tmp_path))
    secured = serve(create_app(FakeEngine().drill(), all_metrics(), access), "127.0.0.1", 0, certificate)
    monkeypatch.setenv("TRUEUP_TOKEN", ADMIN)
    words = ["config", "set", "placement.mode", "approve", "--api", f"https://127.0.0.1:{secured.port}"]
    results = [run(*words, "--ca", str(tmp_path / "certificate.pem")).code, run(*words).code]
    secured.stop()
    assert results == [codes.OK, codes.UNREACHABLE]


@pytest.mark.parametrize("content", [b"", b"a b", b"x" * 17_000, b"\xff"])
def test_a_file_without_a_token_is_reported_without_its_content(run: Run, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "bad"
    file.write_bytes(content)
    result = run("status", "--token-file", str(file))
    assert (result.code, "expected one token" in result.err, "xxxx" in result.err) == (codes.USAGE, True, False)


def test_a_missing_file_is_reported(run: Run, tmp_path: Path) -> None:
    result = run("status", "--token-file", str(tmp_path / "none"))
    assert (result.code, "No such file" in result.err) == (codes.USAGE, True)


@pytest.fixture
def proxy() -> Iterator[tuple[Server, list[dict[str, str | None]]]]:
    seen: list[dict[str, str | None]] = []
    app = Flask(__name__)

    @app.get("/api/status")
    def status() -> tuple[str, int]:
        seen.append({name: request.headers.get(name) for name in ("Authorization", "Trueup-Token")})
        return "<h1>no</h1>", 401

    made = serve(app, "127.0.0.1", 0)
    yield made, seen
    made.stop()


def test_user_and_password_of_the_url_are_sent_beside_the_token(
    proxy: tuple[Server, list[dict[str, str | None]]],
) -> None:
    server, seen = proxy
    with pytest.raises(Exception, match="so a proxy") as found:
        Api(ApiTarget(f"http://ada:p%40ss@127.0.0.1:{server.port}", ADMIN)).get("status")
    basic = base64.b64encode(b"ada:p@ss").decode()
    assert seen == [{"Authorization": f"Basic {basic}", "Trueup-Token": ADMIN}]
    assert ("p@ss" in str(found.value), "p%40ss" in str(found.value)) == (False, False)


def test_a_redirect_is_not_followed(server: Server) -> None:
    app = Flask(__name__)
    app.add_url_rule(
        "/api/status", "status", lambda: ("", 307, {"Location": f"http://127.0.0.1:{server.port}/api/status"})
    )
    other = serve(app, "127.0.0.1", 0)
    with pytest.raises(Exception, match="HTTP 307"):
        Api(ApiTarget(f"http://127.0.0.1:{other.port}", ADMIN)).get("status")
    other.stop()


def test_the_representation_of_a_target_has_no_secret() -> None:
    shown = repr(ApiTarget("http://ada:secret@h", "token"))
    assert ("secret" in shown, "'token'" in shown) == (False, False)


ZOOKEEPER = {"cluster": {"zookeeper": "zk:2181"}}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "trueup.example.com", ""])
def test_an_address_that_others_reach_is_refused_without_tokens(host: str) -> None:
    with pytest.raises(BadSettings, match=r"http\.host.*set http\.tokens_file"):
        parse({**ZOOKEEPER, "http": {"host": host}})


@pytest.mark.parametrize(
    "http",
    [
        {"host": "127.0.0.1"},
        {"host": "127.8.0.1"},
        {"host": "::1"},
        {"host": "localhost"},
        {},
        {"host": "0.0.0.0", "tokens_file": "tokens"},
    ],
)
def test_other_addresses_are_accepted(http: dict[str, str]) -> None:
    assert parse({**ZOOKEEPER, "http": http}).http.port == 8480


@pytest.mark.parametrize(("given", "missing"), [("tls_key", "tls_certificate"), ("tls_certificate", "tls_key")])
def test_a_certificate_and_its_key_belong_together(given: str, missing: str) -> None:
    with pytest.raises(BadSettings, match=rf"http\.{missing}: expected"):
        parse({**ZOOKEEPER, "http": {given: "file"}})


def test_a_check_of_the_configuration_finds_missing_files(tmp_path: Path) -> None:
    names = {name: str(tmp_path / name) for name in ("tokens_file", "tls_certificate", "tls_key")}
    problems = check.problems(parse({**ZOOKEEPER, "http": names}), {})
    assert [problem.partition(":")[0] for problem in problems] == [f"http.{name}" for name in names]


def test_doctor_counts_the_tokens(tokens: Path) -> None:
    found = list(machine.tokens(parse({**ZOOKEEPER, "http": {"tokens_file": str(tokens)}})))
    assert [(check.status, check.found.split(" in ")[0]) for check in found] == [("ok", "2 tokens")]


def test_doctor_finds_a_bad_line(tokens: Path) -> None:
    tokens.write_text(tokens.read_text() + "eve root\n")
    [found] = machine.tokens(parse({**ZOOKEEPER, "http": {"tokens_file": str(tokens)}}))
    assert (found.status, "line 3" in found.found) == ("fail", True)


def test_doctor_finds_a_file_that_others_can_change(tokens: Path) -> None:
    tokens.chmod(0o666)
    [found] = machine.tokens(parse({**ZOOKEEPER, "http": {"tokens_file": str(tokens)}}))
    assert (found.status, found.todo) == ("fail", "remove their write permission")


def test_doctor_warns_of_tokens_without_tls(tokens: Path) -> None:
    found = machine.port(parse({**ZOOKEEPER, "http": {"host": "0.0.0.0", "port": 0, "tokens_file": str(tokens)}}))
    assert (found.status, "without TLS" in found.found) == ("warn", True)


def test_doctor_finds_a_running_application_that_expects_a_token(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRUEUP_TOKEN", ADMIN)  # is not sent to a server that is not verified
    found = machine.port(parse({**ZOOKEEPER, "http": {"port": server.port}}))
    assert (found.status, "expects a valid token" in found.found) == ("warn", True)


@pytest.mark.parametrize(
    ("words", "environment", "sent"),
    [
        (
            ["--report-to", "host:1", "--token-file", "{file}", "--ca", "ca.pem"],
            {},
            ApiTarget("host:1", ADMIN, "ca.pem"),
        ),
        (["--report-to", "u:p@host:1"], {"TRUEUP_TOKEN": VIEWER}, ApiTarget("u:p@host:1", VIEWER)),
        ([], {"TRUEUP_TOKEN_FILE": "/nonexistent"}, ApiTarget("")),
    ],
)
def test_a_read_reports_to_the_application_with_the_token_of_its_user(
    tmp_path: Path, words: list[str], environment: dict[str, str], sent: ApiTarget
) -> None:
    @click.command()
    @options.report_to
    def read(report_to: ApiTarget) -> None:
        found.append(report_to)

    found: list[ApiTarget] = []
    (tmp_path / "token").write_text(ADMIN)
    given = [word.format(file=tmp_path / "token") for word in words]
    clean = dict.fromkeys(("TRUEUP_TOKEN", "TRUEUP_TOKEN_FILE", "TRUEUP_CA"))
    CliRunner().invoke(read, given, env={**clean, **environment}, catch_exceptions=False)
    assert found == [sent]
