"""A running application whose listener has TLS and tokens: the command line, the log, and that no token shows anywhere.

Its ZooKeeper does not respond: the API answers without a cluster. The tests depend on their order."""

import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import urllib3

from tests.certificates import certify
from tests.e2e.planted import MARK, secret, shown
from tests.e2e.trueup import Trueup, command
from tests.issuer import AUDIENCE, Issuer
from trueup.connectors.bookkeeper.bookie.reader import Damage
from trueup.connectors.embedded.processes import Port
from trueup.state.settings.roles import Role
from trueup.state.settings.tokens import line_of
from trueup.streams.terminal import codes
from trueup.streams.terminal.options import target_of
from trueup.streams.topic_reader.damage_report import send
from trueup.streams.topic_reader.reader import ReadReport

pytestmark = [pytest.mark.servers, pytest.mark.release]
ADMIN, VIEWER, REPORTER, GATEWAY = secret("admin"), secret("viewer"), secret("reporter"), secret("gateway")


@pytest.fixture(scope="module")
def root(new_root: Callable[[], Path]) -> Path:
    made = new_root()
    made.mkdir(parents=True, exist_ok=True)
    certify(made)
    lines = [
        line_of("ada", Role.ADMIN, ADMIN),
        "eve root",
        line_of("vera", Role.VIEWER, VIEWER),
        line_of("spark", Role.REPORTER, REPORTER),
        line_of("gateway", Role.ADMIN, GATEWAY),
    ]
    (made / "tokens").write_text("\n".join(lines) + "\n")
    return made


@pytest.fixture(scope="module")
def environment(root: Path) -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRUEUP_CA", str(root / "certificate.pem"))
        patch.setenv("TRUEUP_TOKEN", ADMIN)
        yield patch


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with Issuer() as made:
        yield made


@pytest.fixture(scope="module")
def trueup(root: Path, environment: pytest.MonkeyPatch, issuer: Issuer) -> Iterator[Trueup]:
    names = {"tokens_file": "tokens", "tls_certificate": "certificate.pem", "tls_key": "key.pem"}
    http = {"host": "0.0.0.0", **{name: str(root / file) for name, file in names.items()}}
    sections = {
        "access": {"modes_at_most": {"placement": "approve"}},
        "spark": {"conf": {"spark.planted": secret("spark")}},
        "oidc": {"issuer": issuer.url, "audience": AUDIENCE, "roles": {"operators": "admin"}},
        "proxy": {"tokens": ["gateway"]},
    }
    silent = Port()
    with Trueup(None, root / "run", cluster={"zookeeper": f"127.0.0.1:{silent.number}"}, http=http, **sections) as made:
        made.url = f"https://127.0.0.1:{made.port}"
        made._http = urllib3.PoolManager(
            timeout=10.0,
            retries=False,
            ca_certs=str(root / "certificate.pem"),
            headers={"Authorization": f"Bearer {ADMIN}"},
        )
        made.process.start()
        made.wait("the UI of Spark", lambda status: status["spark_ui"])
        yield made
    silent.release()


def test_a_token_with_the_role_changes_a_setting(trueup: Trueup) -> None:
    assert trueup.run("config", "set", "placement.mode", "approve").code == codes.OK
    [row] = [row for row in trueup.json("get", "actions") if row["kind"] == "config"]
    assert (row["who"], 'by="ada at 127.0.0.1"' in trueup.process.log.read_text()) == ("ada at 127.0.0.1", True)


def test_other_callers_are_refused(trueup: Trueup) -> None:
    results = []
    for token in (VIEWER, "wrong"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TRUEUP_TOKEN", token)
            results += [
                trueup.run("config", "set", "placement.mode", "observe").code,
                trueup.run("get", "actions").code,
            ]
    counts = [trueup.metric("trueup_requests_refused_total", reason=reason) for reason in ("role", "invalid")]
    assert (results, counts) == ([codes.REFUSED, codes.OK, codes.REFUSED, codes.REFUSED], [1, 2])


def test_a_caller_whom_the_provider_knows_is_in_the_history(trueup: Trueup, issuer: Issuer) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRUEUP_TOKEN", issuer.token())
        changed = trueup.run("config", "set", "placement.mode", "observe").code
        patch.setenv("TRUEUP_TOKEN", issuer.token(aud="another"))
        refused = trueup.run("get", "actions")
    rows = [row["who"] for row in trueup.json("get", "actions") if row["kind"] == "config"]
    assert (changed, rows[0], refused.code) == (codes.OK, "oidc:ada at 127.0.0.1", codes.REFUSED)
    assert "for another audience" in refused.err


def test_a_caller_whom_a_proxy_names_is_in_the_history(trueup: Trueup) -> None:
    headers = {"Trueup-Token": GATEWAY, "X-Forwarded-User": "grace"}
    url = f"{trueup.url}/api/config/placement.mode"
    assert trueup._http.request("PUT", url, json={"value": "approve"}, headers=headers).status == 200
    rows = [row["who"] for row in trueup.json("get", "actions") if row["kind"] == "config"]
    assert rows[0] == "gateway:grace at 127.0.0.1"


def test_a_reader_of_topics_reports_damaged_replicas_and_does_nothing_else(trueup: Trueup) -> None:
    report = ReadReport()
    report.damaged(Damage(7, 3, "b1:3181", "NO_ENTRY", missing=True))
    counts = []
    for token in ("", VIEWER, REPORTER):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TRUEUP_TOKEN", token)
            send(lambda: target_of(trueup.url), report)
            refused = trueup.run("config", "set", "placement.paused", "true").code
        counts.append((trueup.metric("trueup_replica_reports_total", outcome="reported"), refused))
    assert counts == [(0, codes.REFUSED), (0, codes.REFUSED), (1, codes.REFUSED)]


def test_a_mode_above_its_bound_is_refused(trueup: Trueup) -> None:
    result = trueup.run("config", "set", "placement.mode", "enforce")
    assert (result.code, "access.modes_at_most" in result.err) == (codes.USAGE, True)


def test_a_bad_line_of_the_file_is_a_problem_with_its_place(trueup: Trueup) -> None:
    assert [text for text in trueup.api("status")["problems"] if "tokens: line 2: expected NAME ROLE" in text]


def test_a_token_that_is_removed_admits_nobody(trueup: Trueup, root: Path) -> None:
    (root / "tokens").write_text(f"{line_of('ada', Role.ADMIN, ADMIN)}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRUEUP_TOKEN", VIEWER)
        assert trueup.run("get", "actions").code == codes.REFUSED
    assert trueup.run("get", "actions").code == codes.OK


def test_doctor_finds_the_running_application(trueup: Trueup) -> None:
    row = next(row for row in doctor(trueup) if row["name"] == "http")
    assert (row["status"], "runs on 0.0.0.0" in row["found"]) == ("ok", True)


def doctor(trueup: Trueup) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = json.loads(command("doctor", "-c", str(trueup.file), "--skip-spark", "-o", "json").out)
    return rows


def test_doctor_reads_the_keys_of_the_provider(trueup: Trueup, issuer: Issuer) -> None:
    rows = {row["name"]: row for row in doctor(trueup)}
    assert (rows["oidc"]["status"], rows["oidc"]["found"]) == ("ok", f"2 keys of {issuer.url}")
    assert (rows["proxy"]["status"], "no token gateway" in rows["proxy"]["found"]) == ("fail", True)  # removed above


def test_spark_ui_stops_nothing(trueup: Trueup) -> None:
    root = f"{trueup.api('status')['spark_ui']}/api/v1/applications"
    [application] = urllib3.request("GET", root).json()
    environment = urllib3.request("GET", f"{root}/{application['id']}/environment").json()
    assert dict(environment["sparkProperties"])["spark.ui.killEnabled"] == "false"


def test_no_secret_is_in_a_support_bundle(trueup: Trueup, root: Path) -> None:
    place = root / "bundle.tar.gz"
    result = trueup.run(
        "support", "bundle", "-c", str(trueup.file), "--log", str(trueup.process.log), "--to", str(place)
    )
    with tarfile.open(place) as made:
        files = {member.name: made.extractfile(member) for member in made.getmembers()}
        found = {name.partition("/")[2]: file.read() for name, file in files.items() if file}
    assert (result.code, b"placement.mode" in found["config.json"], "doctor.json" in found) == (0, True, True), result
    assert [name for name, content in found.items() if MARK in content] == []


def test_no_token_shows_anywhere(trueup: Trueup) -> None:
    assert {kind: places for kind, places in shown(trueup).items() if places} == {}
