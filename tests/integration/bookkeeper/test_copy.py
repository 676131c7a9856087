"""Ledgers that BookKeeper's client wrote, copied to another bookie, and read back by the client from there alone."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest
import urllib3

from tests.integration.bookkeeper import test_reader as reads
from trueup.connectors.bookkeeper.bookie.entries import DamagedEntry, DigestType, head_of
from trueup.connectors.bookkeeper.copy.adds import AddConnection, PoisonedReplica
from trueup.connectors.bookkeeper.copy.ledger_copy import LockedLedger
from trueup.connectors.bookkeeper.copy.members import MemberChange
from trueup.connectors.bookkeeper.copy.remote_copy import CopyOrder, copied
from trueup.connectors.bookkeeper.deletion.presence import PresenceAnswer, presence
from trueup.connectors.bookkeeper.metadata import queries
from trueup.connectors.bookkeeper.metadata.addresses import Addresses
from trueup.connectors.bookkeeper.metadata.metadata import message_of, written
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.writer import LedgerWriter
from trueup.state.bookkeeper.observations import LedgerRecord
from trueup.state.common.errors import Refused, Unknown

pytestmark = pytest.mark.servers
ENTRIES = 300
TIMEOUT_S = 5.0
DIGESTS = ("CRC32", "CRC32C", "MAC", "DUMMY")


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., SandboxCluster]) -> SandboxCluster:
    return start_cluster(racks={"/rack1": 3, "/rack2": 2}, autorecovery=0)


client = reads.client


@pytest.fixture(scope="module")
def writers(cluster: SandboxCluster) -> Iterator[dict[str, LedgerWriter]]:
    """By digest type."""
    with ExitStack() as stack:
        yield {
            digest: stack.enter_context(LedgerWriter(cluster, name=f"writer-{digest}", digest=digest))
            for digest in DIGESTS
        }


@pytest.fixture
def writer(writers: dict[str, LedgerWriter]) -> LedgerWriter:
    return writers["CRC32C"]


class Copier:
    """Copies ledgers as an executor and a driver do together."""

    def __init__(self, cluster: SandboxCluster, client: ZooKeeperClient) -> None:
        self.cluster, self.client = cluster, client
        self.paths = queries.paths_of(client, "/ledgers")
        self.addresses = Addresses(client, self.paths)

    def record(self, ledger: int) -> LedgerRecord:
        found = queries.one(self.client, self.paths, ledger, 0)
        assert found is not None
        return found[0]

    def changes(self, ledger: int, position: int = 0) -> list[MemberChange]:
        """A bookie outside of the ledger takes this place of the first fragment."""
        fragments = self.record(ledger)["fragments"]
        members = {bookie for fragment in fragments for bookie in fragment["bookies"]}
        target = next(
            self.cluster.bookie_id(n) for n in self.cluster.bookies if self.cluster.bookie_id(n) not in members
        )
        return [MemberChange(fragments[0]["first_entry"], position, fragments[0]["bookies"][position], target)]

    def locked(self, ledger: int, changes: list[MemberChange]) -> LockedLedger:
        return locked(self, self.client, ledger, changes)

    def copy(self, held: LockedLedger, holder: ZooKeeperClient | None = None) -> int:
        """Copy all stripes. ``holder``: the session that holds the lock. Returns the number of entries that were
        written."""
        record, session = held.source.record, holder or self.client
        orders = [CopyOrder(record["ledger"], record["version"], session.session, stripe) for stripe in held.stripes]
        return sum(copied(self.client, self.paths, order, TIMEOUT_S, None, lambda _: None).entries for order in orders)

    def move(self, ledger: int, changes: list[MemberChange]) -> int:
        with self.locked(ledger, changes) as held:
            entries = self.copy(held)
            held.commit()
        return entries


@pytest.fixture(scope="module")
def copier(cluster: SandboxCluster, client: ZooKeeperClient) -> Copier:
    return Copier(cluster, client)


def locked(copier: Copier, client: ZooKeeperClient, ledger: int, changes: list[MemberChange]) -> LockedLedger:
    version = copier.record(ledger)["version"]
    return LockedLedger(client, copier.paths, ledger, version, changes, "trueup-test")


@contextmanager
def another_session(copier: Copier) -> Iterator[ZooKeeperClient]:
    session = ZooKeeperClient(str(copier.cluster.zookeeper.address), timeout=30.0).open()
    try:
        yield session
    finally:
        session.shut()


def read_only(admin: str, read_only: bool) -> None:
    """Let a bookie refuse entries or accept them again."""
    answer = urllib3.request("PUT", f"{admin}/api/v1/bookie/state/readonly", json={"readOnly": read_only})
    assert answer.status == 200


def number_of(cluster: SandboxCluster, bookie: str) -> int:
    return next(n for n in cluster.bookies if cluster.bookie_id(n) == bookie)


@pytest.mark.parametrize("digest", DIGESTS)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (2, 2, 2), (3, 2, 2), (4, 3, 2)], ids=str)
def test_the_client_reads_what_was_copied(
    digest: str, sizes: tuple[int, int, int], copier: Copier, writers: dict[str, LedgerWriter]
) -> None:
    """As many members as possible are replaced."""
    ledger = writers[digest].write(*sizes, ENTRIES)
    size, quorum = sizes[:2]
    moved = min(size, len(copier.cluster.bookies) - size)
    entries = sum(copier.move(ledger, copier.changes(ledger, place)) for place in range(moved))
    expected = sum((place - entry) % size < quorum for entry in range(ENTRIES) for place in range(moved))
    assert (entries, writers[digest].verify(ledger, ENTRIES).read) == (expected, ENTRIES)


def test_the_copy_alone_has_every_entry(copier: Copier, writer: LedgerWriter) -> None:
    cluster, writer = copier.cluster, writer
    ledger = writer.write(2, 2, 2, ENTRIES)
    copier.move(ledger, copier.changes(ledger))
    other = f"bookie{number_of(cluster, copier.record(ledger)['fragments'][0]['bookies'][1])}"
    cluster.kill(other)
    try:
        assert writer.verify(ledger, ENTRIES).read == ENTRIES
    finally:
        cluster.start(other)


@pytest.mark.parametrize("entries", [0, 1])
def test_ledgers_of_no_or_one_entry_are_copied(entries: int, copier: Copier, writer: LedgerWriter) -> None:
    ledger = writer.write(3, 2, 2, entries)
    changes = copier.changes(ledger, 2)
    assert (copier.move(ledger, changes), writer.verify(ledger, entries).read) == (0, entries)
    assert copier.record(ledger)["fragments"][0]["bookies"][2] == changes[0].after


def test_an_open_ledger_is_refused_and_its_writer_goes_on(copier: Copier, writer: LedgerWriter) -> None:
    handle = writer.create(2, 2, 2)
    writer.add(handle, 5)
    with pytest.raises(Refused, match="to be closed"):
        copier.move(handle.ledger, copier.changes(handle.ledger))
    writer.add(handle, 5)
    assert handle.entries == 10


def test_a_ledger_that_a_worker_has_locked_is_left_alone(copier: Copier, writer: LedgerWriter) -> None:
    ledger = writer.write(2, 2, 2, 1)
    changes = copier.changes(ledger)
    with copier.locked(ledger, changes), pytest.raises(Refused, match="held by trueup-test"):
        copier.move(ledger, changes)
    assert copier.move(ledger, changes) == 1


def test_metadata_that_change_during_a_copy_stay_as_they_are(copier: Copier, writer: LedgerWriter) -> None:
    ledger = writer.write(2, 2, 2, 3)
    path, before = copier.paths.ledger(ledger), copier.record(ledger)
    with copier.locked(ledger, copier.changes(ledger)) as held:
        copier.copy(held)
        data = copier.client.get(path)[0]
        copier.client.set(path, data)
        with pytest.raises(Refused, match="its metadata changed"):
            held.commit()
    assert (copier.client.get(path)[0], copier.client.exists(copier.paths.lock(ledger))) == (data, None)
    assert copier.record(ledger)["fragments"] == before["fragments"]


def test_a_lock_that_another_one_took_over_ends_the_copy(copier: Copier, writer: LedgerWriter) -> None:
    ledger = writer.write(2, 2, 2, 3)
    path, lock = copier.paths.ledger(ledger), copier.paths.lock(ledger)
    before = copier.client.get(path)[0]
    with another_session(copier) as other, copier.locked(ledger, copier.changes(ledger)) as held:
        copier.copy(held)
        other.delete(lock)
        other.create(lock, b"", ephemeral=True)
        with pytest.raises(Refused, match="its lock changed"):
            held.commit()
        held.close()
        assert (copier.client.get(path)[0], copier.client.exists(lock) is None) == (before, False)


@pytest.mark.parametrize("lost", ["make", "put", "drop", "commit"])
def test_a_response_that_is_lost_leaves_no_lock(
    lost: str, copier: Copier, writer: LedgerWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has done what was asked. The first response is lost."""
    ledger = writer.write(2, 2, 2, 3)
    changes = copier.changes(ledger)
    with another_session(copier) as session:
        lose_response(session, lost, monkeypatch)
        with suppress(Unknown), locked(copier, session, ledger, changes) as held:
            if lost == "commit":
                copier.copy(held, session)
                held.commit()
        assert copier.client.exists(copier.paths.lock(ledger)) is None


def lose_response(session: ZooKeeperClient, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done = getattr(session, name)

    def lose(*args: Any, **options: Any) -> Any:
        monkeypatch.setattr(session, name, done)
        result = done(*args, **options)
        error = Unknown("a response", "none", "observe")
        if name == "commit":
            return iter([error for _ in result])
        raise error

    monkeypatch.setattr(session, name, lose)


def test_a_session_that_ended_copies_and_changes_nothing(copier: Copier, writer: LedgerWriter) -> None:
    ledger = writer.write(2, 2, 2, 3)
    before, changes = copier.record(ledger), copier.changes(ledger)
    with another_session(copier) as session:
        held = locked(copier, session, ledger, changes)
        order = CopyOrder(ledger, before["version"], session.session, held.stripes[0])
    with pytest.raises(Refused, match="the lock"):
        copied(copier.client, copier.paths, order, TIMEOUT_S, None, lambda _: None)
    with pytest.raises(Refused, match="its session ended"):
        held.commit()
    assert copier.record(ledger) == before


def test_a_bookie_that_is_a_member_already_is_refused(copier: Copier, writer: LedgerWriter) -> None:
    ledger = writer.write(3, 2, 2, 3)
    members = copier.record(ledger)["fragments"][0]["bookies"]
    with pytest.raises(Refused, match="a member"):
        copier.move(ledger, [MemberChange(0, 0, members[0], members[1])])


def test_a_read_only_bookie_is_refused(copier: Copier, writer: LedgerWriter) -> None:
    ledger = writer.write(2, 2, 2, 3)
    changes = copier.changes(ledger)
    admin = copier.cluster.bookies[number_of(copier.cluster, changes[0].after)].url
    try:
        read_only(admin, True)
        with pytest.raises(Refused, match="READ_ONLY"):
            copier.move(ledger, changes)
    finally:
        read_only(admin, False)
    assert copier.move(ledger, changes) == 3


def test_damaged_entries_are_not_copied(copier: Copier, writer: LedgerWriter) -> None:
    ledger = writer.write(2, 2, 2, 3)
    path = copier.paths.ledger(ledger)
    message, version = message_of(copier.client.get(path)[0], path)
    message.digestType = DigestType.CRC32  # no stored entry fits
    copier.client.set(path, written(message, version))
    (change,) = copier.changes(ledger)
    with pytest.raises(DamagedEntry):
        copier.move(ledger, [change])
    asked = presence({ledger: [change.after]}, copier.addresses, TIMEOUT_S)
    assert asked == {ledger: {change.after: PresenceAnswer.GONE}}


def test_a_replica_with_another_key_is_found(copier: Copier, writer: LedgerWriter) -> None:
    ledger = writer.write(2, 2, 2, 3)
    (change,) = copier.changes(ledger)
    with copier.locked(ledger, [change]) as held:
        source = held.source
        stored = source.digest.seal(head_of(ledger, 0, -1, 0), b"")
        address = copier.addresses(change.after)
        assert address is not None
        with AddConnection(change.after, address, TIMEOUT_S) as adds:
            adds.add(ledger, bytes(20), [(0, memoryview(stored))])
        with pytest.raises(PoisonedReplica):
            copier.copy(held)
