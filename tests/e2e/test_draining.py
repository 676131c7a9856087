"""The procedure "Drain a bookie" of docs/copy.md, carried out word by word.

Its commands are read out of the steps, and every step is quoted here: a step that is added, removed or reworded has no
action, and fails. One ledger is open when the drain begins.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import urllib3

from tests.e2e.procedures import steps
from tests.e2e.trueup import Trueup
from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.demo.truth import Truth
from trueup.sandbox.writer import LedgerHandle, LedgerWriter

pytestmark = pytest.mark.servers
ENTRIES, LEDGERS = 100, 8
NUMBER = 1
"""The bookie that is drained."""


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., SandboxCluster]) -> SandboxCluster:
    return start_cluster(racks={"/rack1": 3, "/rack2": 3}, autorecovery=0, kafka=True)


@pytest.fixture(scope="module")
def trueup(cluster: SandboxCluster, new_root: Callable[[], Path]) -> Iterator[Trueup]:
    placement = {"mode": "enforce", "grace_s": 1.0, "executor": "copy", "copy_enabled": True, "decline_retry_s": 1.0}
    with Trueup(cluster, new_root(), placement=placement, journal={"bootstrap": cluster.kafka.bootstrap}) as made:
        made.start()
        yield made


class Drained:
    """The actions of an operator, by the first words of each step."""

    def __init__(self, cluster: SandboxCluster, trueup: Trueup, writer: LedgerWriter, truth: Truth) -> None:
        self._cluster, self._trueup, self._writer, self._truth = cluster, trueup, writer, truth
        self.bookie = cluster.bookie_id(NUMBER)
        self.closed = [writer.write(2, 2, 2, ENTRIES) for _ in range(LEDGERS)]
        while not self.named():
            self.closed.append(writer.write(2, 2, 2, ENTRIES))
        self.handle = self._open()
        self.left: list[int] = []
        """The ledgers that name the bookie when nothing but the open one is left."""

    def _open(self) -> LedgerHandle:
        """An open ledger on the bookie."""
        while True:
            handle = self._writer.create(2, 2, 2)
            self._writer.add(handle, ENTRIES)
            if handle.ledger in self.named():
                return handle
            self._writer.close(handle)
            self.closed.append(handle.ledger)

    def named(self) -> list[int]:
        """The ledgers that name the bookie."""
        rows = self._truth.ledgers()
        return [
            int(rows.ledger[at]) for at in range(len(rows)) if any(self.bookie in ring for ring in rows.ensembles(at))
        ]

    @property
    def actions(self) -> Mapping[str, Callable[[str], None]]:
        return {
            "Let the bookie get no new ledgers": self.set_read_only,
            "Begin": self.run,
            "Wait until": self.wait,
            "Stop the bookie for good": lambda _: self._cluster.stop(f"bookie{NUMBER}"),
            "Remove its cookie": self.remove_cookie,
            "End the drain": self.run,
        }

    def carry_out(self, step: str) -> None:
        (action,) = (action for begin, action in self.actions.items() if step.startswith(begin))
        action(re.findall(r"`([^`]*)`", step)[0] if "`" in step else "")

    def set_read_only(self, text: str) -> None:
        words = shlex.split(text.replace("http://BOOKIE-HTTP", self._cluster.bookies[NUMBER].url))
        assert [words[at] for at in (0, 1, 2, 4)] == ["curl", "-X", "PUT", "-d"]
        assert urllib3.request("PUT", words[3], body=words[5]).status == 200
        self._trueup.until("it to be read-only", lambda: self.statuses() == ["readonly"])

    def statuses(self) -> list[str]:
        """The status of the bookie; none if Trueup has forgotten it."""
        return [row["status"] for row in self._trueup.api("bookies") if row["bookie"] == self.bookie]

    def run(self, text: str) -> None:
        words = text.replace("BOOKIE", self.bookie).split()
        done = self._trueup.run(*words[1:])
        assert (words[0], done.code) == ("trueup", 0), done.err

    def wait(self, text: str) -> None:
        assert text == "trueup get drains"
        self._trueup.until("only the open ledger", self.only_open)
        self.left = self.named()
        self._trueup.kill()
        self._trueup.start()
        self._writer.add(self.handle, ENTRIES)
        self._writer.close(self.handle)
        self._trueup.until("nothing", lambda: "nothing: it can be removed" in self._trueup.run("get", "drains").out)

    def only_open(self) -> bool:
        (row,) = self._trueup.api("drains")
        return (row["closed"], [one["ledger"] for one in row["open_ledgers"]]) == (0, [self.handle.ledger])

    def remove_cookie(self, text: str) -> None:
        words = text.replace("BOOKIE", self.bookie).split()
        assert words[:2] == ["bin/bookkeeper", "shell"]
        self._cluster.shell(*words[2:])
        self._trueup.until("the bookie to be forgotten", lambda: not self.statuses())


def test_the_bookie_is_drained_and_removed(
    cluster: SandboxCluster, trueup: Trueup, writer: LedgerWriter, truth: Truth
) -> None:
    drained = Drained(cluster, trueup, writer, truth)
    assert len(drained.named()) > 1
    for step in steps("copy.md", "Drain a bookie"):
        drained.carry_out(step)
    reads = [writer.verify(ledger, ENTRIES).read for ledger in drained.closed]
    opened = writer.verify(drained.handle.ledger, 2 * ENTRIES).read
    assert (drained.left, drained.named()) == ([drained.handle.ledger], [])
    assert (reads, opened, truth.on_one_rack()) == ([ENTRIES] * len(drained.closed), 2 * ENTRIES, set())
    assert trueup.api("drains") == []
