"""Captures of a ZooKeeper that is restored from an older copy of its data: they detect this and stop publishing."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.integration.bookkeeper.tree import MemoryJournal, Tree
from tests.integration.deletion.owners import Owners, OwnersJournal
from tests.integration.zookeeper.watched import WAIT_S
from tests.supervised import run
from trueup.connectors.bookkeeper.metadata.capture import BookKeeperCapture, JournalContent
from trueup.connectors.bookkeeper.metadata.racks import Unmapped
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.pulsar.capture import PulsarCapture as Owning
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.sandbox.servers.zookeeper import ZooKeeper
from trueup.state.bookkeeper.observations import LedgerState

pytestmark = pytest.mark.servers
OPENED, TEMPORARY = 3, 4
LATER = range(100, 200)


class Copied:
    """A server with an older copy of its data. Later, one ledger is closed, one deleted, and others are created."""

    def __init__(self, root: Path) -> None:
        self.server, self.copy = ZooKeeper(root / "zookeeper"), root / "copy"
        self.data = root / "zookeeper" / "data"
        self.server.up()
        self.client = ZooKeeperClient(self.server.address, timeout=30.0).open(60.0)
        self.tree, self.owners = Tree(self.client, "/ledgers"), Owners(self.client, "")
        self.tree.make("/ledgers/INSTANCEID", b"one")
        self.tree.ledgers([1, 2, TEMPORARY])
        self.tree.ledger(OPENED, state=LedgerState.OPEN)
        self.owners.managed_ledger(1, 2, OPENED)
        self.stopped(lambda: shutil.copytree(self.data, self.copy))
        self.journal, self.owned = MemoryJournal(), OwnersJournal()

    def stopped(self, act: Callable[[], object]) -> None:
        self.server.kill()
        act()
        self.server.up()
        wait_until(lambda: self.client.connected, WAIT_S, "the client to be back")

    def go_on(self) -> None:
        """Apply the changes after the copy."""
        self.tree.ledger(OPENED)
        self.tree.delete(TEMPORARY)
        self.tree.ledgers(LATER)
        self.owners.managed_ledger(1, 2, OPENED, *LATER)

    def restore(self) -> None:
        """Restore the copy. The server then assigns ids and zxids again."""
        self.client.shut()

        def back() -> None:
            shutil.rmtree(self.data)
            shutil.copytree(self.copy, self.data)

        self.server.kill()
        back()
        self.server.up()
        self.client = ZooKeeperClient(self.server.address, timeout=30.0).open(60.0)
        self.tree.client = self.owners.client = self.client

    def outrun(self) -> None:
        """Write until the zxid is higher than all observed ones."""
        for ledger in (*LATER[:30], *range(1_000, 1_100)):
            self.tree.ledger(ledger, "c:1", "d:1")

    def known(self, **more: object) -> JournalContent:
        """The content of a journal with all published records."""
        rows = self.journal.ledgers.items()
        live = sorted((i, r["mzxid"]) for i, r in rows if r["state"] != LedgerState.GONE)
        gone = sorted((i, r["mzxid"]) for i, r in rows if r["state"] == LedgerState.GONE)
        (ids, mzxids), (ended, ends) = (np.array(part, np.int64).reshape(-1, 2).T for part in (live, gone))
        zxid = max(r["mzxid"] for _, r in rows)
        return JournalContent(ids, mzxids, gone=ended, gone_zxids=ends, **{"zxid": zxid, **more})  # type: ignore[arg-type]

    def made(self) -> JournalContent:
        """The same for ledgers created after the copy only."""
        known = self.known()
        later = np.isin(known.ledgers, LATER)
        return JournalContent(known.ledgers[later], known.mzxids[later])

    def connect(self) -> ZooKeeperClient:
        return ZooKeeperClient(self.server.address, timeout=30.0)

    def capture(self, known: JournalContent) -> BookKeeperCapture:
        made = BookKeeperCapture(
            self.connect, "/ledgers", Unmapped(), self.journal.publish, self.journal.seen, known, lambda: 1_000
        )
        made.start(run)
        return made

    def observed(self, known: JournalContent) -> int:
        """Run a capture until it has published everything. Returns the number of records."""
        capture = self.capture(known)
        wait_until(lambda: capture.health().synced, WAIT_S, "the capture to be in step")
        capture.close()
        return len(self.journal.all)


@pytest.fixture
def copied(new_root: Callable[[], Path]) -> Iterator[Copied]:
    made = Copied(new_root())
    yield made
    made.client.shut()
    made.server.close()


def refused(capture: BookKeeperCapture | Owning) -> str:
    """The problem of a capture that does not synchronize."""
    wait_until(lambda: capture.health().problem or capture.health().synced, WAIT_S, "the capture to say something")
    found = capture.health()
    capture.close()
    return "" if found.synced else found.problem


def test_an_older_copy_is_noticed_by_its_zxid_its_ledgers_and_its_owners(copied: Copied) -> None:
    copied.observed(JournalContent())
    copied.go_on()
    seen = copied.observed(copied.known())
    owned: dict[str, int] = {path: mzxid for path, (mzxid, _) in copied.owners.actual().items()}
    copied.restore()
    reported = [refused(copied.capture(copied.known())), refused(copied.capture(copied.made()))]
    copied.outrun()
    known = copied.known(zxid=0)
    reported.append(refused(copied.capture(known)))
    only_gone = JournalContent(gone=known.gone, gone_zxids=known.gone_zxids)
    reported.append(refused(copied.capture(only_gone)))
    owning = Owning(copied.connect, copied.owners.paths, copied.owned.publish, owned, lambda: 1)
    owning.start(run)
    reported.append(refused(owning))
    words = [
        "expected ZooKeeper at zxid",
        "expected a znode below /ledgers/",
        f"expected {copied.tree.paths.ledger(OPENED)} as written",
        f"expected {copied.tree.paths.ledger(TEMPORARY)} as written",
        "expected /managed-ledgers/t/ns/persistent/a as",
    ]
    assert [text[: len(word)] for text, word in zip(reported, words, strict=True)] == words
    assert (len(copied.journal.all), copied.owned.all, "rebuild" in reported[0]) == (seen, [], True)


def test_a_capture_that_runs_notices_an_older_copy(copied: Copied) -> None:
    copied.go_on()
    capture = copied.capture(JournalContent())
    wait_until(lambda: capture.health().synced, WAIT_S, "the capture to be in step")
    seen = len(copied.journal.all)
    copied.restore()
    copied.outrun()
    wait_until(lambda: "rebuild" in capture.health().problem, WAIT_S, "the older copy to be noticed")
    assert (capture.health().synced, len(copied.journal.all)) == (False, seen)
    capture.close()


def test_another_cluster_is_noticed_by_its_identity(copied: Copied) -> None:
    reported = refused(copied.capture(JournalContent(instance="another")))
    assert reported.startswith("expected the BookKeeper cluster with INSTANCEID another; found one"), reported
