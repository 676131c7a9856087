"""The capture of owners on a real ZooKeeper: the first snapshot, each change, and recovery from lost connections."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from kazoo.security import ACL, ANYONE_ID_UNSAFE, OPEN_ACL_UNSAFE, Permissions

from tests.integration.deletion.owners import TOPIC, Owners, OwnersJournal
from tests.integration.zookeeper.watched import WAIT_S, Watched
from tests.proxy import Proxy
from tests.supervised import run
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.pulsar.capture import PulsarCapture
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.sandbox.servers.zookeeper import ZooKeeper
from trueup.state.common.errors import Retry, Stop
from trueup.state.deletion.owners import SCHEMA, OwnerStatus

pytestmark = pytest.mark.servers

HIDDEN = [ACL(Permissions.ALL & ~Permissions.READ, ANYONE_ID_UNSAFE)]


@dataclass
class Setting(Watched):
    """The owners of one cluster, observed by a capture through a proxy. ``now_ms``: the capture's clock."""

    owners: Owners
    proxy: Proxy
    journal: OwnersJournal = field(default_factory=OwnersJournal)
    captures: list[PulsarCapture] = field(default_factory=list)
    now_ms: int = 1_000

    def start(self, known: Mapping[str, int] | None = None, ended: Mapping[str, int] | None = None) -> PulsarCapture:
        def connect() -> ZooKeeperClient:
            return ZooKeeperClient(self.proxy.address, timeout=30.0)

        made = PulsarCapture(
            connect, self.owners.paths, self.journal.publish, known or {}, lambda: self.now_ms, ended=ended or {}
        )
        self.captures.append(made)
        made.start(run)
        return made

    def capture(self, known: Mapping[str, int] | None = None, ended: Mapping[str, int] | None = None) -> PulsarCapture:
        made = self.start(known, ended)
        return self.in_step(made)

    def settled(self) -> None:
        """Wait until the journal's content equals ZooKeeper's."""
        wait_until(lambda: self.journal.snapshot() == self.owners.actual(), WAIT_S, "the journal to be complete")

    def wait_status(self, path: str, status: OwnerStatus) -> None:
        """Wait until this status of a node is published."""
        wait_until(lambda: self.journal.status(path) is status, WAIT_S, f"{path} to be {status.name}")


@pytest.fixture
def setting(zookeeper: ZooKeeper, client: ZooKeeperClient, own_root: str) -> Iterator[Setting]:
    with Proxy(zookeeper.address) as proxy:
        made = Setting(Owners(client, own_root), proxy)
        yield made
        for capture in made.captures:
            capture.close()


def populate(owners: Owners, topics: int) -> None:
    for n in range(topics):
        owner = f"t/ns{n % 3}/persistent/topic{n}"
        owners.managed_ledger(n, 1_000 + n, owner=owner)
        owners.cursor("sub", 2_000 + n, owner=owner)
        owners.cursor("__compaction", -1, 3_000 + n, owner=owner)
        owners.schema(f"t/ns{n % 3}/topic{n}", 4_000 + n)


def test_at_first_everything_is_published(setting: Setting) -> None:
    populate(setting.owners, 150)
    setting.owners.managed_ledger(7, owner="t/cluster/ns/persistent/old")
    setting.owners.managed_ledger(8, owner="t/ns/segment/topic/0000-ffff-0")
    setting.capture()
    assert setting.journal.snapshot() == setting.owners.actual()


def test_directories_are_not_published(setting: Setting) -> None:
    path = setting.owners.managed_ledger(7)
    setting.capture()
    assert [node.path for node in setting.journal.all] == [path]


def test_a_cluster_without_anything_is_no_problem(setting: Setting) -> None:
    setting.owners.client.delete(setting.owners.paths.ledgers)
    capture = setting.capture()
    setting.owners.managed_ledger(1)
    setting.settled()
    assert (capture.health().problem, capture.health().nodes) == ("", 1)


def test_every_change_is_published(setting: Setting) -> None:
    owners = setting.owners
    owners.managed_ledger(1)
    cursor = owners.cursor("sub", 5)
    setting.capture()
    populate(owners, 20)
    setting.settled()
    owners.managed_ledger(2, 3)
    owners.client.drop(cursor, -1)
    owners.client.delete(owners.paths.node("t/ns0/persistent/topic3"), recursive=True)
    owners.client.delete(f"{owners.paths.schemas}/t/ns0/topic3")
    setting.settled()
    gone = {path.rpartition("/")[2] for path, node in setting.journal.nodes.items() if node.status is OwnerStatus.GONE}
    assert gone == {"sub", "topic3", "__compaction"}


def test_a_start_publishes_only_what_the_journal_does_not_hold(setting: Setting) -> None:
    owners = setting.owners
    populate(owners, 5)
    known = {path: mzxid for path, (mzxid, _) in owners.actual().items()}
    changed, former = owners.managed_ledger(6), f"{owners.paths.ledgers}/t/ns/persistent/former"
    doubtful = next(iter(known))
    setting.capture(known | {doubtful: -1, former: 7})
    result = {node.path: node.status for node in setting.journal.all}
    assert result == {changed: OwnerStatus.READABLE, doubtful: OwnerStatus.READABLE, former: OwnerStatus.GONE}


def test_what_happened_while_the_connection_was_lost_is_published(setting: Setting) -> None:
    owners = setting.owners
    populate(owners, 10)
    capture = setting.capture()

    def meanwhile() -> None:
        owners.managed_ledger(1)
        owners.managed_ledger(owner="t/ns1/persistent/topic1")
        owners.client.delete(owners.paths.node("t/ns2/persistent/topic2"), recursive=True)

    setting.lose(capture, meanwhile)
    setting.settled()
    assert setting.journal.snapshot() == owners.actual()


def test_after_a_reconnect_nothing_is_published_again(setting: Setting) -> None:
    populate(setting.owners, 10)
    capture = setting.capture()
    before = len(setting.journal.all)
    setting.lose(capture, lambda: None)
    assert len(setting.journal.all) == before


def test_a_server_that_restarts_is_followed_again(new_root: Callable[[], Path]) -> None:
    with ZooKeeper(new_root()) as server:
        server.up()
        client = ZooKeeperClient(server.address, timeout=30.0).open()
        owners, journal = Owners(client, "/restart"), OwnersJournal()
        owners.managed_ledger(1)
        capture = PulsarCapture(
            lambda: ZooKeeperClient(server.address, timeout=30.0), owners.paths, journal.publish, {}, lambda: 1
        )
        capture.start(run)
        wait_until(lambda: capture.health().synced, WAIT_S, "the capture to be in step")
        server.restart()
        wait_until(lambda: client.connected, WAIT_S, "the session to come back")
        owners.managed_ledger(1, 2)
        wait_until(lambda: journal.snapshot() == owners.actual(), WAIT_S, "the change to be published")
        capture.close()
        client.shut()


def test_what_may_not_be_read_is_unreadable_until_it_may(setting: Setting) -> None:
    owners = setting.owners
    path, cursor = owners.managed_ledger(1), owners.cursor("sub", 5)
    owners.client.set_acls(path, HIDDEN)
    capture = setting.capture()
    setting.wait_status(path, OwnerStatus.UNREADABLE)
    assert (setting.journal.status(cursor), capture.health().forbidden) == (None, (path,))
    owners.client.set_acls(path, OPEN_ACL_UNSAFE)
    setting.now_ms += 61_000
    setting.wait_status(cursor, OwnerStatus.READABLE)
    assert (setting.journal.status(path), capture.health().forbidden) == (OwnerStatus.READABLE, ())


def test_what_was_readable_and_is_forbidden_now_is_not_gone(setting: Setting) -> None:
    owners = setting.owners
    path, cursor = owners.managed_ledger(1), owners.cursor("sub", 5)
    capture = setting.capture()
    setting.lose(capture, lambda: owners.client.set_acls(path, HIDDEN))
    setting.wait_status(path, OwnerStatus.UNREADABLE)
    assert setting.journal.status(cursor) is OwnerStatus.READABLE
    owners.client.set_acls(path, OPEN_ACL_UNSAFE)


def test_a_directory_that_may_not_be_read_does_not_make_what_is_below_gone(setting: Setting) -> None:
    owners = setting.owners
    path = owners.managed_ledger(1)
    above = path.rpartition("/")[0]
    capture = setting.capture()
    setting.lose(capture, lambda: owners.client.set_acls(above, HIDDEN))
    setting.wait_status(above, OwnerStatus.UNREADABLE)
    assert setting.journal.status(path) is OwnerStatus.READABLE
    owners.client.set_acls(above, OPEN_ACL_UNSAFE)
    setting.now_ms += 61_000
    setting.wait_status(above, OwnerStatus.GONE)


def hidden(owners: Owners, path: str, data: bytes = b"") -> str:
    """Create a node that only its creator may read: ZooKeeper sends no event to others (since 3.9.2)."""
    owners.make(path.rpartition("/")[0])
    owners.client.create(path, data, acl=HIDDEN)
    return path


@pytest.mark.parametrize("by", ["the name in a ledger", "time"])
def test_an_owner_that_is_created_without_permission_to_read_it_is_unreadable(setting: Setting, by: str) -> None:
    capture = setting.capture()
    path = hidden(setting.owners, setting.owners.paths.node(TOPIC))
    if by == "time":
        setting.now_ms += 61_000
    else:
        capture.seek([TOPIC, "t/ns/persistent/never", "a//b"])
    setting.wait_status(path, OwnerStatus.UNREADABLE)
    assert (capture.health().forbidden, [node.path for node in setting.journal.all]) == ((path,), [path])


def test_a_namespace_that_loses_permission_is_reported(setting: Setting) -> None:
    path = setting.owners.managed_ledger(1)
    capture = setting.capture()
    namespace = path.rsplit("/", 2)[0]
    setting.owners.client.set_acls(namespace, HIDDEN)
    setting.now_ms += 61_000
    wait_until(lambda: capture.health().forbidden == (namespace,), WAIT_S, "the namespace to be reported")
    assert setting.journal.status(path) is OwnerStatus.READABLE
    setting.owners.client.set_acls(namespace, OPEN_ACL_UNSAFE)


def test_an_owner_that_is_deleted_and_created_without_permission_is_not_gone(setting: Setting) -> None:
    path = setting.owners.managed_ledger(1)
    capture = setting.capture()
    setting.owners.client.drop(path, -1)
    setting.wait_status(path, OwnerStatus.GONE)
    hidden(setting.owners, path)
    capture.seek([TOPIC])
    setting.wait_status(path, OwnerStatus.UNREADABLE)
    setting.owners.client.set_acls(path, OPEN_ACL_UNSAFE)
    setting.now_ms += 61_000
    setting.wait_status(path, OwnerStatus.READABLE)
    assert capture.health().problem == ""


def test_a_start_knows_that_a_node_without_permission_was_gone(setting: Setting) -> None:
    path = hidden(setting.owners, setting.owners.paths.node(TOPIC))
    setting.capture(ended={path: 1 << 40})
    setting.wait_status(path, OwnerStatus.UNREADABLE)
    assert setting.journal.nodes[path].mzxid == 1 << 40


def test_tops_that_may_not_be_read_are_a_problem(setting: Setting) -> None:
    owners = setting.owners
    owners.client.set_acls(owners.paths.ledgers, HIDDEN)
    capture = setting.start()
    wait_until(lambda: "permission" in capture.health().problem, WAIT_S, "the problem to be told")
    owners.client.set_acls(owners.paths.ledgers, OPEN_ACL_UNSAFE)
    wait_until(lambda: capture.health().synced, WAIT_S, "the capture to be in step")


def test_damage_is_published_and_so_is_its_repair(setting: Setting) -> None:
    path = setting.owners.managed_ledger(1)
    setting.owners.make(path, b"\x0a\x7f")
    capture = setting.capture()
    setting.wait_status(path, OwnerStatus.UNREADABLE)
    assert path in setting.journal.nodes[path].error
    setting.owners.managed_ledger(1)
    setting.wait_status(path, OwnerStatus.READABLE)
    wait_until(lambda: capture.health().unreadable == (), WAIT_S, "none to be unreadable")


def test_what_could_not_be_published_is_published_again(setting: Setting) -> None:
    setting.owners.managed_ledger(1)
    setting.journal.failures = 2
    setting.capture()
    assert setting.journal.snapshot() == setting.owners.actual()


def test_health_reports_until_when_all_is_published(setting: Setting) -> None:
    setting.owners.managed_ledger(1)
    capture = setting.capture()
    setting.now_ms = 5_000
    wait_until(lambda: capture.health().complete_ms == 5_000, WAIT_S, "a turn")
    assert (capture.health().connected, capture.health().nodes) == (True, 1)


def test_an_owner_is_read_as_it_is(setting: Setting) -> None:
    owners = setting.owners
    capture = setting.capture()
    path, cursor = owners.managed_ledger(1, 2), owners.cursor("sub%2Fx", 5)
    read = [(node.path, node.name, node.ledgers, node.elsewhere) for node in capture.read(TOPIC)]
    assert read == [(path, "", (1, 2), False), (cursor, "sub%2Fx", (5,), True)]


def test_a_schema_is_read_as_it_is(setting: Setting) -> None:
    capture = setting.capture()
    path = setting.owners.schema("t/ns/a", 9)
    (node,) = capture.read(f"{SCHEMA}t/ns/a")
    assert (node.path, node.owner, node.ledgers) == (path, f"{SCHEMA}t/ns/a", (9,))


@pytest.mark.parametrize("owner", ["t/ns/persistent/b", f"{SCHEMA}t/ns/b", "t/ns"])
def test_an_owner_that_is_not_there_reads_as_gone(setting: Setting, owner: str) -> None:
    setting.owners.make(f"{setting.owners.paths.ledgers}/t/ns")
    (node,) = setting.capture().read(owner)
    assert (node.owner, node.status, node.ledgers) == (owner, OwnerStatus.GONE, ())


def test_reading_fails_without_a_server(setting: Setting) -> None:
    capture = setting.capture()

    def ask() -> None:
        with pytest.raises(Retry):
            capture.read(TOPIC)

    setting.lose(capture, ask)


def test_reading_an_invalid_owner_is_refused(setting: Setting) -> None:
    with pytest.raises(Stop):
        setting.capture().read("a//b")
