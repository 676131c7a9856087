"""`trueup what-if` on a real cluster, and what happens when the rack dies."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.trueup import on_one_rack
from trueup.connectors.embedded.processes import wait_until
from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.writer import LedgerWriter
from trueup.streams.cli.main import invoke

pytestmark = pytest.mark.servers
ENTRIES, SIZE = 30, 256
Rows = dict[str, dict[str, Any]]
Ask = Callable[..., tuple[int, Rows]]


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., SandboxCluster]) -> SandboxCluster:
    return start_cluster(racks={"/rack1": 2, "/rack2": 2}, autorecovery=0)


@pytest.fixture(scope="module")
def writer(cluster: SandboxCluster) -> Iterator[LedgerWriter]:
    with LedgerWriter(cluster) as made:
        yield made


@pytest.fixture(scope="module")
def narrow(cluster: SandboxCluster, writer: LedgerWriter) -> list[int]:
    """Ledgers with all replicas on /rack1."""
    return on_one_rack(cluster, writer, 3, ENTRIES)


@pytest.fixture(scope="module")
def wide(narrow: list[int], writer: LedgerWriter) -> list[int]:
    """Ledgers with replicas on both racks."""
    return [writer.write(2, 2, 2, ENTRIES) for _ in range(4)]


@pytest.fixture
def ask(cluster: SandboxCluster, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Runs the command with these words: the exit code, and the rows by name."""

    def ask(*words: str) -> tuple[int, Rows]:
        script = f"racks.script={cluster.rack_script}"
        chosen = ["--set", f"cluster.zookeeper={cluster.zookeeper.address}", "--set", "racks.source=script"]
        capsys.readouterr()
        code = invoke(["what-if", *words, *chosen, "--set", script, "-o", "json"])
        return code, {row["name"]: row for row in json.loads(capsys.readouterr().out or '{"rows": []}')["rows"]}

    return ask


def counts(row: dict[str, Any]) -> tuple[int, ...]:
    return tuple(row[name] for name in ("ledgers", "lost", "one_copy", "fewer", "open"))


def test_each_rack_is_judged_alone(ask: Ask, narrow: list[int], wide: list[int]) -> None:
    code, rows = ask("rack")
    assert (code, counts(rows["now"]), counts(rows["/rack1"]), counts(rows["/rack2"])) == (
        0,
        (0, 0, 0, 0, 0),
        (7, 3, 4, 0, 0),
        (4, 0, 4, 0, 0),
    )


def test_bytes_to_copy_are_those_of_the_replicas(ask: Ask, wide: list[int]) -> None:
    assert ask("rack", "/rack2")[1]["/rack2"]["to_copy"] == len(wide) * ENTRIES * SIZE


def test_several_bookies_fail_together(ask: Ask, cluster: SandboxCluster, narrow: list[int]) -> None:
    first, second = cluster.bookie_id(1), cluster.bookie_id(2)
    _, rows = ask("bookie", first, second)
    assert rows[f"{first} {second}"]["named"] == narrow


def test_a_name_that_is_not_there_is_refused(ask: Ask) -> None:
    assert ask("rack", "/rack9") == (5, {})


def test_the_rack_dies(ask: Ask, cluster: SandboxCluster, narrow: list[int], wide: list[int]) -> None:
    expected = ask("rack", "/rack1")[1]["/rack1"]
    cluster.kill("/rack1")
    with LedgerWriter(cluster) as reader:
        lost = [ledger for ledger in narrow + wide if reader.verify(ledger, ENTRIES).read < ENTRIES]
    wait_until(lambda: ask("rack")[1]["now"]["bookies"] == 2, 60.0, "registrations to expire")
    now = ask("rack")[1]["now"]
    assert (expected["named"], now["named"], counts(now)) == (lost, lost, counts(expected))
