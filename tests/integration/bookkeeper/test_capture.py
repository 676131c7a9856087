"""The capture on a real ZooKeeper: the first snapshot, each change, and recovery from all kinds of lost connections."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from tests.integration.bookkeeper.tree import PASSWORD, MemoryJournal, Tree
from tests.integration.zookeeper.watched import WAIT_S, Watched
from tests.proxy import Proxy
from tests.supervised import run
from trueup.connectors.bookkeeper.metadata.capture import BookKeeperCapture, JournalContent
from trueup.connectors.bookkeeper.metadata.feeds import MarkFeed
from trueup.connectors.bookkeeper.metadata.racks import PulsarRacks, RackMap, StaticRacks, Unmapped
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.zookeeper.client import FAST, ZooKeeperClient
from trueup.sandbox.servers.zookeeper import ZooKeeper
from trueup.state.bookkeeper.marks import HIDDEN, MarkRows
from trueup.state.bookkeeper.observations import LedgerState, Sighting
from trueup.state.bookkeeper.topology import UNKNOWN_RACK

pytestmark = pytest.mark.servers

NOTHING = JournalContent()
SESSION_S = 30.0


@dataclass
class Setting(Watched):
    """The znodes of one cluster, observed by a capture through a proxy."""

    tree: Tree
    proxy: Proxy
    direct: str
    journal: MemoryJournal = field(default_factory=MemoryJournal)
    captures: list[BookKeeperCapture] = field(default_factory=list)

    def start(self, known: JournalContent = NOTHING, racks: RackMap | None = None) -> BookKeeperCapture:
        def connect() -> ZooKeeperClient:
            return ZooKeeperClient(self.proxy.address, timeout=SESSION_S)

        root, journal = self.tree.paths.root, self.journal
        made = BookKeeperCapture(
            connect, root, racks or Unmapped(), journal.publish, journal.seen, known, lambda: 1_000
        )
        self.captures.append(made)
        made.start(run)
        return made

    def capture(self, known: JournalContent = NOTHING, racks: RackMap | None = None) -> BookKeeperCapture:
        made = self.start(known, racks)
        return self.in_step(made)

    def settled(self) -> None:
        """Wait until the journal's content equals ZooKeeper's."""
        wait_until(lambda: self.journal.snapshot() == self.tree.actual(), WAIT_S, "the journal to be complete")


@pytest.fixture
def setting(zookeeper: ZooKeeper, client: ZooKeeperClient, own_root: str) -> Iterator[Setting]:
    with Proxy(zookeeper.address) as proxy:
        made = Setting(Tree(client, own_root), proxy, zookeeper.address)
        yield made
        made.journal.gate.set()
        for capture in made.captures:
            capture.close()


def expire(setting: Setting, capture: BookKeeperCapture) -> None:
    """End the session on the server with a second client that uses the session's id and password."""
    client = capture._client
    assert client is not None
    client_id = client.client_id
    other = ZooKeeperClient(setting.direct, timeout=SESSION_S, client_id=client_id).open()
    other.shut()


def test_at_first_everything_is_published(setting: Setting) -> None:
    setting.tree.ledgers([*range(6_000), 2**31 - 1, 2**40])
    setting.capture()
    assert setting.journal.snapshot() == setting.tree.actual()


def test_no_password_is_published(setting: Setting) -> None:
    setting.tree.ledgers(range(200))
    setting.tree.make(setting.tree.paths.ledger(7), PASSWORD + b" is no metadata")
    setting.capture()
    assert PASSWORD.decode() not in repr(setting.journal.all)


def test_a_start_publishes_only_what_the_journal_does_not_hold(setting: Setting) -> None:
    setting.tree.ledgers(range(500))
    held = {i: mzxid for i, (mzxid, _) in setting.tree.actual().items() if i != 3}
    held |= {4: 1, 900: 1}
    ids = np.array(sorted(held))
    setting.capture(JournalContent(ids, np.array([held[i] for i in ids.tolist()])))
    reported = {ledger: record["state"] for ledger, record in setting.journal.ledgers.items()}
    assert reported == {3: LedgerState.CLOSED, 4: LedgerState.CLOSED, 900: LedgerState.GONE}


def test_creations_writes_and_deletions_are_followed(setting: Setting) -> None:
    tree, capture = setting.tree, setting.capture()
    tree.ledger(1, state=LedgerState.OPEN)
    tree.ledger(2)
    setting.settled()
    tree.ledger(1, "a:1", "c:1", length=80)
    tree.delete(2)
    setting.settled()
    assert (setting.journal.ledgers[1]["fragments"][0]["bookies"], capture.health().ledgers) == (["a:1", "c:1"], 1)


def test_a_deleted_ledger_is_gone_as_of_its_deletion(setting: Setting) -> None:
    setting.tree.ledger(2)
    setting.capture()
    setting.tree.delete(2)
    deleted = setting.tree.client.last_zxid
    wait_until(lambda: setting.journal.ledgers[2]["state"] == LedgerState.GONE, WAIT_S, "the deletion")
    assert setting.journal.ledgers[2]["mzxid"] == deleted


def test_id_generation_is_no_news(setting: Setting) -> None:
    capture = setting.capture()
    setting.tree.make(f"{setting.tree.paths.root}/idgen/ID-0000000001")
    setting.tree.ledger(5)
    setting.settled()
    assert (setting.journal.published(), capture.health().behind) == ([5], 0)


def test_a_lost_connection_loses_no_change_and_repeats_none(setting: Setting) -> None:
    setting.tree.ledgers(range(3_000))
    capture = setting.capture()
    session, before = capture.health().session, len(setting.journal.all)

    def meanwhile() -> None:
        for ledger in range(0, 3_000, 100):
            setting.tree.ledger(ledger, "c:1", "d:1")
        for ledger in (1, 2_999):
            setting.tree.delete(ledger)
        setting.tree.ledgers([3_000, 10_000, 2**33])

    setting.lose(capture, meanwhile)
    setting.settled()
    health = capture.health()
    changed = [*range(0, 3_000, 100), 1, 2_999, 3_000, 10_000, 2**33]
    assert (health.session, health.snapshots, health.resyncs, sorted(setting.journal.published()[before:])) == (
        session,
        1,
        1,
        sorted(changed),
    )


def test_an_expired_session_loses_no_change(setting: Setting) -> None:
    setting.tree.ledgers(range(300))
    capture = setting.capture()
    session = capture.health().session
    expire(setting, capture)
    setting.tree.ledger(7, "c:1", "d:1")
    setting.tree.delete(8)
    setting.tree.ledger(301)
    wait_until(lambda: capture.health().synced and capture.health().session != session, WAIT_S, "a new session")
    setting.settled()
    assert capture.health().snapshots == 1


def test_a_connection_lost_while_getting_in_step_loses_nothing(setting: Setting) -> None:
    setting.tree.ledgers(range(2_000))
    setting.journal.gate.clear()
    capture = setting.start()
    wait_until(lambda: capture.health().connected, WAIT_S, "a connection")
    setting.proxy.cut()
    setting.tree.ledger(5, "c:1", "d:1")
    setting.journal.gate.set()
    wait_until(lambda: capture.health().synced, WAIT_S, "the capture to be in step")
    setting.settled()
    assert setting.journal.ledgers[5]["fragments"][0]["bookies"] == ["c:1", "d:1"]


def test_after_any_loss_the_journal_converges_to_the_metadata(setting: Setting) -> None:
    chance = random.Random(20261121)
    setting.tree.ledgers(range(400))
    capture = setting.capture()
    alive = set(range(400))
    for step in range(600):
        ledger = chance.randrange(500)
        if ledger in alive and chance.random() < 0.3:
            setting.tree.delete(ledger)
            alive.discard(ledger)
        else:
            setting.tree.ledger(ledger, "a:1", f"b{step}:1")
            alive.add(ledger)
        if step % 60 == 30:
            setting.proxy.cut()
        if step % 200 == 199 and capture.health().connected:
            expire(setting, capture)
    wait_until(lambda: capture.health().synced, WAIT_S, "the capture to be in step")
    setting.settled()
    assert {i for i, r in setting.journal.ledgers.items() if r["state"] != LedgerState.GONE} == alive


def test_a_journal_that_is_away_loses_nothing(setting: Setting) -> None:
    setting.tree.ledgers(range(300))
    setting.journal.failures = 3
    capture = setting.capture()
    setting.journal.failures = 2
    setting.tree.ledger(1, "c:1", "d:1")
    setting.settled()
    wait_until(lambda: capture.health().problem == "", WAIT_S, "the problem to be over")
    assert sorted(setting.journal.published()) == sorted([*range(300), 1])


def test_damaged_metadata_is_named_and_holds_nothing_up(setting: Setting) -> None:
    tree = setting.tree
    tree.ledger(1)
    capture = setting.capture()
    path = tree.paths.ledger(2)
    tree.make(path, b"BookieMetadataFormatVersion\t9\n")
    tree.ledger(3)
    setting.settled()
    record = setting.journal.ledgers[2]
    unreadable = capture.health().unreadable
    tree.ledger(2)
    setting.settled()
    assert (f"byte 28 of {path}" in record["error"], unreadable, capture.health().unreadable) == (True, 1, 0)


@pytest.mark.parametrize("early", [True, False])
def test_ids_beyond_64_bits_are_reported_and_block_nothing(setting: Setting, early: bool) -> None:
    tree, root = setting.tree, setting.tree.paths.root
    paths = (f"{root}/999/9999/9999/9999/L9999", f"{tree.paths.locks}/urL9999999999999999999")
    capture = None if early else setting.capture()
    for path in paths:
        tree.make(path)
    capture = capture or setting.capture()
    tree.ledger(3)
    setting.settled()
    wait_until(lambda: paths[0] in capture.health().invalid_paths, WAIT_S, "the znode to be told")
    tree.client.drop(paths[0], -1)
    wait_until(lambda: paths[0] not in capture.health().invalid_paths, WAIT_S, "the znode to be forgotten")
    assert (capture.health().synced, setting.journal.published()) == (True, [3])


def test_numbers_of_thousands_of_digits_are_named_and_hold_nothing_up(setting: Setting) -> None:
    tree = setting.tree
    tree.make(tree.paths.ledger(2), b"BookieMetadataFormatVersion\t1\n" + b"7" * 4_301)
    capture = setting.capture()
    tree.ledger(3)
    setting.settled()
    error = setting.journal.ledgers[2]["error"]
    assert ("a number of 64 bits at byte 30" in error, capture.health().unreadable) == (True, 1)


def test_a_forbidden_ledger_is_not_a_deleted_one(setting: Setting) -> None:
    setting.tree.ledgers(range(10))
    path = setting.tree.paths.ledger(4)
    setting.tree.client.set_acls(path, [make_digest_acl("u", "p", all=True)])
    capture = setting.capture(JournalContent(np.arange(10), np.zeros(10, np.int64)))
    assert (sorted(setting.journal.published()), capture.health().forbidden) == ([0, 1, 2, 3, 5, 6, 7, 8, 9], 1)


def test_a_ledger_that_was_never_readable_is_counted(setting: Setting) -> None:
    setting.tree.ledgers(range(10))
    setting.tree.client.set_acls(setting.tree.paths.ledger(4), [make_digest_acl("u", "p", all=True)])
    health = setting.capture().health()
    assert (health.ledgers, health.hidden) == (9, 1)


def test_a_permission_given_later_is_noticed_after_the_next_reconnect(setting: Setting) -> None:
    setting.tree.ledgers(range(10))
    path = setting.tree.paths.ledger(4)
    setting.tree.client.add_auth("digest", "u:p")
    setting.tree.client.set_acls(path, [make_digest_acl("u", "p", all=True)])
    capture = setting.capture()
    setting.lose(capture, lambda: setting.tree.client.set_acls(path, OPEN_ACL_UNSAFE))
    setting.settled()
    assert (capture.health().snapshots, capture.health().forbidden, 4 in setting.journal.ledgers) == (2, 0, True)


def rows(marks: MarkRows | None) -> list[tuple[int, ...]]:
    """Ledger, time, version and lock of each mark."""
    return [] if marks is None else marks.tolist()


def test_a_mark_and_its_lock_are_one_row(setting: Setting) -> None:
    tree, capture = setting.tree, setting.capture()
    steps: list[tuple[Callable[[], None], list[tuple[int, ...]]]] = [
        (lambda: tree.mark(6, "a:1"), [(6, 5, 0, 0)]),
        (lambda: tree.lock(6, "worker-1"), [(6, 5, 0, 1)]),
        (lambda: tree.mark(6, "a:1", "b:1", ctime_ms=6), [(6, 6, 1, 1)]),
        (lambda: tree.client.drop(tree.paths.mark(6), -1), [(6, -1, -1, 1)]),
        (lambda: tree.client.drop(tree.paths.lock(6), -1), []),
    ]
    for act, expected in steps:
        act()
        wait_until(lambda expected=expected: rows(capture.marks) == expected, WAIT_S, f"the mark to be {expected}")


CLOSED = [make_digest_acl("u", "p", all=True)]


def test_a_mark_that_may_not_be_read_counts_as_one(setting: Setting) -> None:
    tree = setting.tree
    tree.mark(6, "a:1")
    tree.client.set_acls(tree.paths.mark(6), CLOSED)
    capture = setting.capture()
    health = capture.health()
    assert (rows(capture.marks), health.hidden_nodes, health.hidden_node) == (
        [(6, -1, HIDDEN, 0)],
        1,
        tree.paths.mark(6),
    )


def test_a_lock_that_may_not_be_read_is_held(setting: Setting) -> None:
    tree = setting.tree
    tree.lock(6, "worker-1")
    tree.client.set_acls(tree.paths.lock(6), CLOSED)
    capture = setting.capture()
    assert (rows(capture.marks), capture.health().hidden_node) == ([(6, -1, -1, 1)], tree.paths.lock(6))


def test_a_mark_below_a_level_that_may_not_be_read_is_found(setting: Setting) -> None:
    tree = setting.tree
    tree.mark(6, "a:1")
    tree.client.set_acls(tree.paths.mark_parent(6), CLOSED)
    assert rows(setting.capture().marks) == [(6, 5, 0, 0)]


def test_a_permission_to_read_a_mark_is_noticed_without_an_event(setting: Setting) -> None:
    tree, path, now_ms = setting.tree, setting.tree.paths.mark(6), [100_000]
    tree.mark(6, "a:1")
    tree.client.add_auth("digest", "u:p")
    tree.client.set_acls(path, CLOSED)
    reader = ZooKeeperClient(setting.direct, timeout=SESSION_S).open()
    feed = MarkFeed(lambda: now_ms[0], FAST)
    feed.read_all(reader, tree.paths)
    tree.client.set_acls(path, OPEN_ACL_UNSAFE)
    reader.settle(path)
    now_ms[0] += 100_000
    feed.follow(reader, tree.paths, ())
    reader.shut()
    assert (rows(feed.rows), feed.forbidden) == ([(6, 5, 0, 0)], {})


def test_a_registration_that_may_not_be_read_has_no_guessed_rack(setting: Setting) -> None:
    tree = setting.tree
    path = f"{tree.paths.available}/10.0.0.1:3181"
    tree.make(path)
    tree.client.set_acls(path, CLOSED)
    capture = setting.capture(racks=StaticRacks({"10.0.0.1": "/r1"}))
    expected = [Sighting("10.0.0.1:3181", UNKNOWN_RACK, "writable", False, 0)]
    assert (setting.journal.bookies[-1], capture.health().hidden_node) == (expected, path)


def test_a_rack_map_that_may_not_be_read_leaves_racks_unknown_and_nothing_else(setting: Setting) -> None:
    tree, znode = setting.tree, f"{setting.tree.paths.root}-bookies"
    tree.ledger(1)
    tree.make(f"{tree.paths.available}/b1:3181")
    tree.client.add_auth("digest", "u:p")
    tree.client.create(znode, b'{"g": {"b1:3181": {"rack": "/r1"}}}', acl=CLOSED)
    capture = setting.capture(racks=PulsarRacks(znode))
    seen = setting.journal.bookies[-1][0].rack, znode in capture.health().rack_problem
    tree.client.set_acls(znode, OPEN_ACL_UNSAFE)
    wait_until(lambda: setting.journal.bookies[-1][0].rack == "/r1", WAIT_S, "the rack map to be read")
    assert (seen, list(setting.journal.ledgers)) == ((UNKNOWN_RACK, True), [1])


def test_marks_that_changed_without_a_session_are_read_again(setting: Setting) -> None:
    tree = setting.tree
    tree.mark(1, "a:1")
    tree.lock(3, "w")
    capture = setting.capture()
    setting.lose(capture, lambda: [tree.client.drop(tree.paths.mark(1), -1), tree.mark(5)])  # type: ignore[func-returns-value]
    expected = [(3, -1, -1, 1), (5, 5, 0, 0)]
    wait_until(lambda: rows(capture.marks) == expected, WAIT_S, "all marks")


def test_bookies_are_reported_when_they_change(setting: Setting) -> None:
    tree, paths = setting.tree, setting.tree.paths
    tree.make(f"{paths.cookies}/10.0.0.1:3181")
    tree.make(f"{paths.available}/10.0.0.1:3181")
    racks = StaticRacks({"10.0.0.1": "/r1", "bk-2": "/r2"})
    setting.capture(racks=racks)
    tree.make(f"{paths.available}/readonly/10.0.0.1:3181")
    readonly = tree.client.last_zxid
    tree.client.drop(f"{paths.available}/10.0.0.1:3181", -1)
    tree.make(f"{paths.available}/bk-2")
    created = tree.client.last_zxid
    expected = [
        Sighting("10.0.0.1:3181", "/r1", "readonly", True, readonly),
        Sighting("bk-2", "/r2", "writable", False, created),
    ]
    wait_until(lambda: setting.journal.bookies[-1] == expected, WAIT_S, "both bookies")


def test_pulsars_rack_map_is_followed(setting: Setting) -> None:
    tree, znode = setting.tree, f"{setting.tree.paths.root}-bookies"
    tree.make(f"{tree.paths.available}/b1:3181")
    setting.capture(racks=PulsarRacks(znode))
    seen = [setting.journal.bookies[-1][0].rack]
    for data, rack in ((b'{"g": {"b1:3181": {"rack": "/r1"}}}', "/r1"), (b'{"g": {"b1:3181": {"rack": "r2"}}}', "/r2")):
        tree.make(znode, data)
        wait_until(lambda rack=rack: setting.journal.bookies[-1][0].rack == rack, WAIT_S, f"rack {rack}")
    assert seen == [None]


def test_a_damaged_rack_map_is_reported_and_the_old_one_holds(setting: Setting) -> None:
    tree, znode = setting.tree, f"{setting.tree.paths.root}-bookies"
    tree.make(f"{tree.paths.available}/b1:3181")
    tree.make(znode, b'{"g": {"b1:3181": {"rack": "/r1"}}}')
    capture = setting.capture(racks=PulsarRacks(znode))
    tree.make(znode, b"{")
    wait_until(lambda: znode in capture.health().rack_problem, WAIT_S, "the complaint")
    assert setting.journal.bookies[-1][0].rack == "/r1"


def test_ledgers_are_read_afresh(setting: Setting) -> None:
    setting.tree.ledgers(range(30))
    capture = setting.capture()
    setting.tree.ledger(7, "c:1", "d:1", "e:1")
    rows = capture.read([29, 7, 1_000])
    found = capture.read_one(7)
    assert found is not None
    assert (rows.ledger.tolist(), rows.ensembles(0), found[1].version, capture.read_one(1_000)) == (
        [7, 29],
        [["c:1", "d:1", "e:1"]],
        1,
        None,
    )


def test_a_zookeeper_that_goes_and_comes_back_loses_no_change(
    new_root: Callable[[], Any], request: pytest.FixtureRequest
) -> None:
    with ZooKeeper(new_root()) as server:
        server.up()
        with Proxy(server.address) as proxy:
            writer = ZooKeeperClient(server.address, timeout=30.0).open()
            setting = Setting(Tree(writer, "/ledgers"), proxy, server.address)
            setting.tree.ledgers(range(50))
            capture = setting.capture()
            server.kill()
            wait_until(lambda: not capture.health().synced, WAIT_S, "the loss to be noticed")
            server.up()
            wait_until(lambda: writer.connected, WAIT_S, "the writer to be back")
            setting.tree.ledger(60)
            wait_until(lambda: capture.health().synced, WAIT_S, "the capture to be in step")
            setting.settled()
            capture.close()
            writer.shut()


def test_a_registration_without_an_event_is_found_and_everything_is_read_again(setting: Setting) -> None:
    capture = setting.capture()
    client = capture._client
    assert client is not None
    sink = client.sink
    assert sink is not None
    client.sink = lambda events: sink([event for event in events if "/available/" not in event[2]])
    setting.tree.make(f"{setting.tree.paths.available}/b1:3181")
    wait_until(lambda: capture.health().snapshots == 2, WAIT_S, "everything to be read again")
    assert [sighting.registered for sighting in setting.journal.bookies[-1]] == ["writable"]
