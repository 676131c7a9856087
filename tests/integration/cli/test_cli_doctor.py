"""trueup doctor on a real cluster: no findings if it is healthy, exact findings otherwise, and nothing left behind."""

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import urllib3
from kazoo.client import KazooClient
from kazoo.security import make_acl

from tests.unit.cli.fake_engine import FakeEngine
from trueup.connectors.embedded.processes import free_port
from trueup.sandbox.cluster import SandboxCluster
from trueup.state.settings.roles import Role
from trueup.state.settings.tokens import line_of
from trueup.streams.bookkeeper.worker_checks import short
from trueup.streams.catalog import all_metrics
from trueup.streams.cli.main import invoke
from trueup.streams.web.api import create_app, serve

pytestmark = pytest.mark.servers
Doctor = Callable[..., tuple[int, dict[str, dict[str, str]]]]
FLAG = "repairedPlacementPolicyNotAdheringBookieEnabled"


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., SandboxCluster]) -> SandboxCluster:
    return start_cluster(racks={"/rack1": 1, "/rack2": 1}, autorecovery=1)


@pytest.fixture(scope="module")
def zookeeper(cluster: SandboxCluster) -> Iterator[KazooClient]:
    client = KazooClient(cluster.zookeeper.address)
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture
def doctor(cluster: SandboxCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Doctor:
    """Runs the command with settings that fit the cluster and ``given``. Returns the exit code and rows by name."""
    fitting = {
        "cluster.zookeeper": cluster.zookeeper.address,
        "cluster.autorecovery": json.dumps(cluster.autorecovery_urls),
        "racks.source": "script",
        "racks.script": str(cluster.rack_script),
        "data_dir": str(tmp_path / "data"),
        "http.port": "0",
    }

    def run(*words: str, spark: bool = False, **given: str) -> tuple[int, dict[str, dict[str, str]]]:
        chosen = {**fitting, **{key.replace("__", "."): value for key, value in given.items()}}
        pairs = [word for key, value in chosen.items() for word in ("--set", f"{key}={value}")]
        code = invoke(["doctor", "-o", "json", *([] if spark else ["--skip-spark"]), *words, *pairs])
        return code, {row["name"]: row for row in json.loads(capsys.readouterr().out)}

    return run


def at(cluster: SandboxCluster) -> str:
    """host:port of the daemon's HTTP API."""
    return short(cluster.autorecovery_urls[0])


def statuses(rows: dict[str, dict[str, str]]) -> dict[str, str]:
    return {name: row["status"] for name, row in rows.items() if row["status"] != "ok"}


def test_all_is_well(doctor: Doctor) -> None:
    code, rows = doctor()
    assert (code, statuses(rows)) == (0, {})


def test_every_part_is_looked_at(doctor: Doctor, cluster: SandboxCluster) -> None:
    _, rows = doctor()
    address = at(cluster)
    assert list(rows) == [
        "java",
        "jars",
        "data_dir",
        "http",
        "tokens",
        "journal",
        "zookeeper",
        "bookkeeper",
        "bulk reads",
        "right: marks",
        "right: vote",
        "auditor",
        "replication",
        "bookies",
        "bookie connections",
        "racks",
        f"worker {address}",
        f"racks of {address}",
    ]


def test_it_leaves_nothing_behind(doctor: Doctor, zookeeper: KazooClient) -> None:
    def tree(path: str) -> set[str]:
        below = zookeeper.get_children(path)
        return {path}.union(*(tree(f"{path}/{name}") for name in below))

    before = tree("/ledgers")
    doctor()
    assert tree("/ledgers") == before


@pytest.mark.release
def test_spark_is_tried(doctor: Doctor) -> None:
    _, rows = doctor(spark=True)
    found = rows["spark"]["found"]
    assert (rows["spark"]["status"], found) == ("ok", "Spark 4.3.0 with connector, Avro and a stateful batch")


def test_a_worker_without_the_flag(doctor: Doctor, cluster: SandboxCluster) -> None:
    address = at(cluster)
    with urllib3.PoolManager() as pool:
        url = f"http://{address}/api/v1/config/server_config"
        pool.request("PUT", url, body=json.dumps({FLAG: "false"}))
        code, rows = doctor()
        pool.request("PUT", url, body=json.dumps({FLAG: "true"}))
    row = rows[f"worker {address}"]
    assert (code, row["status"], row["found"]) == (1, "fail", f"{FLAG} is false, expected true")


def test_another_minimum_of_racks(doctor: Doctor, cluster: SandboxCluster) -> None:
    _, rows = doctor(placement__min_racks="1")
    found = rows[f"worker {at(cluster)}"]["found"]
    assert found == "minNumRacksPerWriteQuorum is 2, expected 1"


def test_racks_that_only_the_worker_knows(doctor: Doctor, cluster: SandboxCluster) -> None:
    code, rows = doctor(racks__source="none")
    address = at(cluster)
    assert (code, statuses(rows)) == (1, {"racks": "fail", f"racks of {address}": "fail"})


def test_one_bookie_in_another_rack(doctor: Doctor, cluster: SandboxCluster) -> None:
    table = {cluster.bookie_id(1): "/rack2", cluster.bookie_id(2): "/rack1"}
    _, rows = doctor(racks__source="static", racks__table=json.dumps(table))
    found = rows[f"racks of {at(cluster)}"]["found"]
    assert found == (
        f"different racks of 2 bookies: {cluster.bookie_id(1)} in /rack1, here /rack2; "
        f"{cluster.bookie_id(2)} in /rack2, here /rack1"
    )


def test_the_same_racks_from_another_source(doctor: Doctor, cluster: SandboxCluster) -> None:
    table = {cluster.bookie_id(1): "/rack1", cluster.bookie_id(2): "/rack2"}
    code, rows = doctor(racks__source="static", racks__table=json.dumps(table))
    assert (code, rows[f"racks of {at(cluster)}"]["found"]) == (0, "the same racks for 2 bookies")


def test_a_bookie_without_a_rack(doctor: Doctor, cluster: SandboxCluster) -> None:
    _, rows = doctor(racks__source="static", racks__table=json.dumps({cluster.bookie_id(1): "/rack1"}))
    assert (rows["racks"]["status"], rows["racks"]["found"]) == ("warn", "/default-rack 1, /rack1 1")


def test_a_rack_script_that_fails(doctor: Doctor, tmp_path: Path) -> None:
    code, rows = doctor(racks__script=str(tmp_path / "none.sh"))
    assert (code, rows["racks"]["status"]) == (1, "fail")


def test_a_worker_that_does_not_answer(doctor: Doctor) -> None:
    address = f"127.0.0.1:{free_port()}"
    code, rows = doctor(cluster__autorecovery=f"[{address}]")
    assert (code, rows[f"worker {address}"]["found"]) == (1, "[Errno 111] Connection refused")


def test_no_worker_is_named(doctor: Doctor) -> None:
    code, rows = doctor(cluster__autorecovery="[]")
    assert (code, statuses(rows)) == (0, {"workers": "warn"})


@pytest.mark.parametrize(("mode", "status", "code"), [("observe", "warn", 0), ("enforce", "fail", 1)])
def test_no_right_to_write_marks(doctor: Doctor, zookeeper: KazooClient, mode: str, status: str, code: int) -> None:
    path = "/ledgers/underreplication/ledgers"
    before, _ = zookeeper.get_acls(path)
    zookeeper.set_acls(path, [make_acl("world", "anyone", read=True, admin=True)])
    found, rows = doctor(placement__mode=mode, placement__hold_vote="false")
    zookeeper.set_acls(path, before)
    assert (found, rows["right: marks"]["status"], rows["right: marks"]["found"]) == (
        code,
        status,
        f"{path}: no permission",
    )


def test_another_auditor_while_we_would_audit(doctor: Doctor) -> None:
    _, rows = doctor(placement__mode="enforce")
    assert statuses(rows) == {"auditor": "warn"}


def test_replication_switched_off(doctor: Doctor, zookeeper: KazooClient) -> None:
    zookeeper.create("/ledgers/underreplication/disable")
    _, rows = doctor()
    zookeeper.delete("/ledgers/underreplication/disable")
    assert statuses(rows) == {"replication": "warn"}


def test_another_root(doctor: Doctor) -> None:
    code, rows = doctor(cluster__ledgers_root="/elsewhere")
    assert (code, statuses(rows)) == (1, {"bookkeeper": "fail"})


def test_no_zookeeper(doctor: Doctor) -> None:
    code, rows = doctor(cluster__zookeeper=f"127.0.0.1:{free_port()}")
    assert (code, statuses(rows), "bookkeeper" in rows) == (1, {"zookeeper": "fail"}, False)


def test_no_journal(doctor: Doctor) -> None:
    code, rows = doctor(journal__bootstrap=f"127.0.0.1:{free_port()}")
    assert (code, statuses(rows)) == (1, {"journal": "fail"})


def test_a_port_that_something_else_has(doctor: Doctor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.listen()
        _, rows = doctor(http__port=str(other.getsockname()[1]))
    assert statuses(rows) == {"http": "fail"}


def test_a_port_that_trueup_has(doctor: Doctor) -> None:
    server = serve(create_app(FakeEngine(), all_metrics()), "127.0.0.1", 0)
    _, rows = doctor(http__port=str(server.port))
    server.stop()
    assert rows["http"]["found"] == f"Trueup 0.1.0 runs on 127.0.0.1:{server.port}, mode observe"


def test_an_open_port_is_warned_of(doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(line_of("ada", Role.ADMIN, "token"))
    _, rows = doctor(http__host="0.0.0.0", http__tokens_file=str(tmp_path / "tokens"))
    assert statuses(rows) == {"http": "warn"}


def test_settings_that_cannot_be_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert (invoke(["doctor"]), "cluster.zookeeper" in capsys.readouterr().err) == (2, True)


def test_the_table_counts(doctor: Doctor, capsys: pytest.CaptureFixture[str], cluster: SandboxCluster) -> None:
    invoke(
        ["doctor", "--skip-spark", "--set", f"cluster.zookeeper={cluster.zookeeper.address}", "--set", "http.port=0"]
    )
    assert capsys.readouterr().out.splitlines()[-1].endswith("1 failed, 1 warning")
