"""Repair by copy in the world: no checker complains, and each condition of a copy that is removed is found."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.simulation.copy_bookies import FENCE, KEY_BYTES, URGENT
from tests.simulation.copy_checkers import CopyCheckers
from tests.simulation.copying import SimulatedCopies
from tests.simulation.instances import Process
from tests.simulation.planted import complaint
from tests.simulation.simulation import Parts, simulate
from trueup.connectors.bookkeeper.bookie import bulk_reads
from trueup.connectors.bookkeeper.bookie.entries import Digest
from trueup.connectors.bookkeeper.copy import adds, ledger_copy, ledger_lock, ledger_source, remote_copy, stripes
from trueup.connectors.bookkeeper.copy.ledger_lock import LedgerLock
from trueup.connectors.bookkeeper.copy.ledger_source import SourceMetadata
from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths
from trueup.connectors.zookeeper.client import ZooKeeperClient, writing
from trueup.state.bookkeeper.ledgers import Ledgers
from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.common.rules import Verdict
from trueup.state.placement import view
from trueup.state.placement.policy.fencing import FormerMembers
from trueup.state.placement.rules import RULES
from trueup.state.placement.verdicts import Verdicts, judge
from trueup.streams.placement import reconciler

SEEDS, ALWAYS, TOGETHER = 300, 100, 25
"""The first seeds run in every test run, all of them in `make release-check`."""
PLACEMENT = ("placement",)
PARTS = (PLACEMENT, (*PLACEMENT, "pulsar"))
HAPPENS = ("steps", "crashes", "marks", "repaired", "recopied")
"""What happens in every group of seeds."""


@pytest.mark.parametrize(
    "first", [pytest.param(n, marks=[pytest.mark.release] if n >= ALWAYS else []) for n in range(0, SEEDS, TOGETHER)]
)
def test_no_checker_complains(first: int) -> None:
    outcomes = [vars(simulate(seed, None, PARTS[seed % 2], "copy")) for seed in range(first, first + TOGETHER)]
    assert [name for name in HAPPENS if not sum(outcome[name] for outcome in outcomes)] == []


def found(says: str, parts: Parts | None = None) -> bool:
    """Whether a checker complains so."""
    return says in complaint(says, parts, PLACEMENT, "copy")


def judged_open(ledgers: Ledgers, *given: Any) -> Verdicts:
    """Open ledgers are judged as if they were closed and on a draining bookie."""
    result = judge(ledgers, *given)
    still_open = ledgers.state == LedgerState.OPEN
    rule = np.where(still_open, RULES.code("placement.draining-member"), result.rule)
    return replace(result, rule=rule, verdict=np.where(still_open, np.uint8(Verdict.DRIFTED), result.verdict))


def test_an_open_ledger_that_is_copied_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (view, reconciler):
        monkeypatch.setattr(module, "judge", judged_open)
    for module in (reconciler, ledger_source):
        monkeypatch.setattr(module, "LedgerState", SimpleNamespace(CLOSED=LedgerState.OPEN))
    monkeypatch.setattr(
        CopyCheckers, "beginning", lambda checkers, number, _, moves, __: checkers.expect(number, moves)
    )
    monkeypatch.setattr(CopyCheckers, "shown", lambda *_: None)
    assert found("while it was OPEN")


class Unlocked(LedgerLock):
    """Neither takes the lock nor requires it."""

    def __init__(self, client: ZooKeeperClient, paths: BookKeeperPaths, ledger: int, holder: str) -> None:
        del holder
        self._client, self._paths, self._ledger = client, paths, ledger

    def commit(self, data: bytes, version: int) -> None:
        self._committed([writing(self._paths.ledger(self._ledger), data, version)])

    def release(self) -> None:
        pass


@pytest.fixture
def unlocked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_copy, "LedgerLock", Unlocked)
    monkeypatch.setattr(remote_copy, "_while_locked", lambda entries, *_: entries)


@pytest.mark.usefixtures("unlocked")
def test_a_copy_without_the_lock_is_caught() -> None:
    assert found("without its lock")


@pytest.mark.usefixtures("unlocked")
def test_a_copy_that_is_collected_for_want_of_a_lock_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The harm is found by itself."""
    monkeypatch.setattr(CopyCheckers, "locked", lambda *_: None)
    assert found("without its entries")


def test_a_byte_that_is_written_before_the_metadata_were_read_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    read = dict[tuple[int, int], SourceMetadata]()

    def remembered(_client: ZooKeeperClient, _paths: BookKeeperPaths, ledger: int, version: int) -> SourceMetadata:
        return read[ledger, version]

    def remembering(client: ZooKeeperClient, paths: BookKeeperPaths, ledger: int, version: int) -> SourceMetadata:
        source = read[ledger, version] = SourceMetadata(client, paths, ledger, version)
        return source

    monkeypatch.setattr(ledger_copy, "SourceMetadata", remembering)
    monkeypatch.setattr(remote_copy, "SourceMetadata", remembered)
    assert found("before its metadata were read")


def test_a_former_member_as_the_target_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FormerMembers, "of", lambda *_: frozenset())
    assert found("to members or former members")


@pytest.mark.parametrize(
    ("module", "name", "flag", "says"),
    [
        (bulk_reads, "_BATCH_HEAD", FENCE, "received operation 7 with flags 1"),
        (bulk_reads, "_READ_HEAD", FENCE, "received operation 2 with flags 1"),
        (adds, "_ADD_HEAD", URGENT, "received operation 1 with flags 6"),
    ],
    ids=["fence", "fence of single reads", "high priority"],
)
def test_a_flag_that_no_copy_sets_is_caught(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, flag: int, says: str
) -> None:
    monkeypatch.setattr(module, name, getattr(module, name) | flag)
    assert found(says)


def test_a_damaged_entry_that_is_copied_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Digest, "check", lambda *_: None)
    assert found("damaged")


def test_a_key_that_is_not_from_the_metadata_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_source, "master_key", lambda _: bytes(KEY_BYTES))
    assert found("with another key")


def test_a_lost_change_of_another_process_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_lock, "writing", lambda path, data, _: writing(path, data, -1))
    assert found("which nobody ordered")


def test_a_replica_that_was_not_read_back_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stripes, "verify", lambda *_: None)
    assert found("without its entries")


def test_metadata_that_name_what_was_not_copied_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    task = SimulatedCopies._task
    monkeypatch.setattr(SimulatedCopies, "_task", lambda *given: task(*given)._replace(error=None))
    assert found("without its entries")


class Unfenced(Process):
    """ZooKeeper takes the changes of an earlier leader."""

    def refused(self, epoch: int) -> bool:
        return False


def test_a_copy_of_an_earlier_leader_is_caught() -> None:
    assert found("acted after", Parts(process=Unfenced))
