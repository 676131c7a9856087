"""The ZooKeeper client with a real server: recursive watches, bulk reads, comparison, and lost responses."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.security import make_digest_acl

from tests.proxy import Proxy
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.zookeeper.client import CommittedNode, NodeEvent, Pace, ZooKeeperClient, check, deletion, writing
from trueup.connectors.zookeeper.errors import FORBIDDEN, GONE, BadVersion, Forbidden, NodeExists, NoNode, NotEmpty
from trueup.connectors.zookeeper.requests import Multi
from trueup.sandbox.servers.zookeeper import ZooKeeper
from trueup.state.common.errors import BadSettings, Retry, TrueupError, Unknown

pytestmark = pytest.mark.servers

EventList = list[tuple[int, int, str]]


@pytest.fixture
def connect(zookeeper: ZooKeeper) -> Iterator[Callable[..., ZooKeeperClient]]:
    opened: list[ZooKeeperClient] = []

    def make(address: str = zookeeper.address, **options: Any) -> ZooKeeperClient:
        opened.append(ZooKeeperClient(address, timeout=6.0, **options).open())
        return opened[-1]

    yield make
    for client in opened:
        client.shut()


@pytest.fixture
def client(connect: Callable[..., ZooKeeperClient]) -> ZooKeeperClient:
    return connect()


@pytest.fixture
def root(client: ZooKeeperClient, own_root: str) -> str:
    return client.make(own_root)


def creations(client: ZooKeeperClient, root: str, count: int) -> list[bytes]:
    names = [b"n%04d" % n for n in range(count)]
    batches = [names[at : at + 100] for at in range(0, count, 100)]
    done = client.commit([client.creation(f"{root}/{n.decode()}", b"data " + n) for n in batch] for batch in batches)
    assert not any(code for answer in done if isinstance(answer, CommittedNode) for code in answer.codes)
    return names


def test_every_write_below_a_watched_root_is_reported_once_in_order(
    connect: Any, client: ZooKeeperClient, root: str
) -> None:
    received: EventList = []
    connect(sink=received.extend).add_watch(root)
    names = creations(client, root, 1_000)
    for name in names[:50]:
        client.put(f"{root}/{name.decode()}", b"new", -1)
        client.drop(f"{root}/{name.decode()}", -1)
    wait_until(lambda: len(received) >= 1_100, 180.0, "all events")
    reported = [(kind, path[len(root) + 1 :].encode()) for _, kind, path in received]
    changes = [(kind, name) for name in names[:50] for kind in (NodeEvent.DATA, NodeEvent.DELETED)]
    assert reported == [(NodeEvent.CREATED, name) for name in names] + changes


def test_an_event_has_the_zxid_of_its_write(connect: Any, client: ZooKeeperClient, root: str) -> None:
    received: EventList = []
    connect(sink=received.extend).add_watch(root)
    path = client.make(f"{root}/a")
    wait_until(lambda: received, 180.0, "an event")
    found = client.look(path)
    assert found is not None
    assert received[0][0] == found[1].mzxid


@pytest.mark.parametrize("bulk", [True, False], ids=["multi", "single"])
def test_many_reads_find_what_single_reads_find(client: ZooKeeperClient, root: str, bulk: bool) -> None:
    names = creations(client, root, 600)
    client._bulk = bulk
    asked = [*names[:300], b"missing", *names[300:]]
    rows = [(part, row) for part in client.multi_read(root, asked, Pace(250, 2)) for row in range(len(part))]
    found = [(part.data(row), part.stat(row)) if part.size[row] >= 0 else None for part, row in rows]
    assert found == [client.look(f"{root}/{name.decode()}") for name in asked]


def test_znodes_without_data_have_empty_data(client: ZooKeeperClient, root: str) -> None:
    client.create(f"{root}/null", None)
    client.make(f"{root}/empty")
    (part,) = client.multi_read(root, [b"null", b"empty"])
    assert part.size.tolist() == [0, 0]


@pytest.mark.parametrize("bulk", [True, False], ids=["multi", "single"])
def test_forbidden_is_not_gone(client: ZooKeeperClient, root: str, bulk: bool) -> None:
    client.make(f"{root}/open")
    client.create(f"{root}/closed", b"x", acl=[make_digest_acl("u", "p", all=True)])
    client._bulk = bulk
    parts = client.multi_read(root, [b"closed", b"gone", b"open"])
    assert [size for part in parts for size in part.size.tolist()] == [FORBIDDEN, GONE, 0]


def test_credentials_are_passed_through(connect: Any, client: ZooKeeperClient, root: str) -> None:
    client.create(f"{root}/closed", b"x", acl=[make_digest_acl("u", "p", all=True)])
    (part,) = connect(auth_data=[("digest", "u:p")]).multi_read(root, [b"closed"])
    assert part.data(0) == b"x"


def test_listings_show_one_instant_and_nothing_for_what_is_missing(client: ZooKeeperClient, root: str) -> None:
    creations(client, root, 3)
    lists, zxid = client.listings([root, f"{root}/none", f"{root}/n0001"])
    found = client.look(f"{root}/n0002")
    assert ([sorted(names) for names in lists], found is not None and zxid >= found[1].mzxid) == (
        [[b"n0000", b"n0001", b"n0002"], [], []],
        True,
    )


def test_a_listing_without_permission_names_the_node(client: ZooKeeperClient, root: str) -> None:
    client.make(f"{root}/open")
    client.create(f"{root}/closed", b"", acl=[make_digest_acl("u", "p", all=True)])
    with pytest.raises(Forbidden, match=f"listing {root}/closed;"):
        client.listings([f"{root}/open", f"{root}/gone", f"{root}/closed"])


def test_a_node_that_may_not_be_read_is_present(client: ZooKeeperClient, root: str) -> None:
    client.create(f"{root}/closed", b"", acl=[make_digest_acl("u", "p", all=True)])
    assert [client.present(f"{root}/{name}") for name in ("closed", "gone")] == [True, False]


def test_comparison_names_exactly_what_changed(connect: Any, client: ZooKeeperClient, root: str) -> None:
    names = creations(client, root, 5_000)
    _, since = client.listing(root)
    client.put(f"{root}/n0007", b"", -1)
    client.drop(f"{root}/n4999", -1)
    received: EventList = []
    other = connect(sink=received.extend)
    other.set_watches(since, [f"{root}/".encode() + name for name in names], [root.encode()])
    assert sorted((path[len(root) :], kind) for _, kind, path in received) == [
        ("", NodeEvent.CHILDREN),
        ("/n0007", NodeEvent.DATA),
        ("/n4999", NodeEvent.DELETED),
    ]


def test_a_server_that_is_behind_is_refused(zookeeper: ZooKeeper, client: ZooKeeperClient) -> None:
    _, zxid = client.listing("/")
    with pytest.raises(Retry):
        ZooKeeperClient(zookeeper.address).open(wait_s=1.0, after_zxid=zxid + 1_000)


def test_no_server_is_a_reason_to_try_again() -> None:
    with Proxy("127.0.0.1:1") as nowhere, pytest.raises(Retry):
        ZooKeeperClient(nowhere.address).open(wait_s=0.5)


def test_a_path_in_the_server_list_is_refused() -> None:
    with pytest.raises(BadSettings):
        ZooKeeperClient("127.0.0.1:2181/chroot")


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (lambda c, r: c.make(f"{r}/a/b"), NoNode),
        (lambda c, r: c.make(r), NodeExists),
        (lambda c, r: c.put(r, b"", 5), BadVersion),
        (lambda c, r: c.drop(r, -1), NotEmpty),
        (lambda c, r: c.look(f"{r}/closed"), Forbidden),
        (lambda c, r: c.listing(f"{r}/none"), NoNode),
    ],
)
def test_refusals_are_distinguished(client: ZooKeeperClient, root: str, act: Any, error: type[TrueupError]) -> None:
    client.create(f"{root}/closed", b"", acl=[make_digest_acl("u", "p", all=True)])
    with pytest.raises(error):
        act(client, root)


def test_a_commit_is_whole_or_nothing(client: ZooKeeperClient, root: str) -> None:
    batches = [
        [client.creation(f"{root}/a"), check(root, 0), writing(f"{root}/a", b"x", 0)],
        [client.creation(f"{root}/b"), check(root, 9), deletion(f"{root}/a", -1)],
    ]
    done = [answer.codes for answer in client.commit(batches) if isinstance(answer, CommittedNode)]
    assert (done[0], done[1][1], client.listing(root)[0]) == ([None, None, None], -103, [b"a"])


def test_a_lost_answer_to_a_write_is_unknown(
    zookeeper: ZooKeeper, connect: Any, client: ZooKeeperClient, root: str
) -> None:
    with Proxy(zookeeper.address) as proxy:
        far = connect(proxy.address)
        proxy.deaf = True
        sent = far.send(Multi([far.creation(f"{root}/a")]))
        wait_until(lambda: client.look(f"{root}/a"), 180.0, "the write to be done")
        proxy.cut()
        with pytest.raises(Unknown):
            far._await(sent, "creating", writing=True)
        proxy.deaf = False


def test_a_lost_answer_to_a_read_is_worth_another_try(zookeeper: ZooKeeper, connect: Any, root: str) -> None:
    with Proxy(zookeeper.address) as proxy:
        far = connect(proxy.address)
        proxy.deaf = True
        answers = far.multi_read(root, [b"a"])
        proxy.cut()
        with pytest.raises(Retry):
            list(answers)
        proxy.deaf = False


def test_without_a_connection_nothing_is_sent(
    zookeeper: ZooKeeper, connect: Any, client: ZooKeeperClient, root: str
) -> None:
    with Proxy(zookeeper.address) as proxy:
        far = connect(proxy.address)
        proxy.open = False
        proxy.cut()
        wait_until(lambda: not far.connected, 180.0, "the loss to be noticed")
        with pytest.raises(Retry):
            far.make(f"{root}/a")
    assert client.listing(root)[0] == []


def test_a_write_that_was_still_in_the_queue_is_worth_another_try(
    zookeeper: ZooKeeper, connect: Any, client: ZooKeeperClient, root: str
) -> None:
    with Proxy(zookeeper.address) as proxy:
        far = connect(proxy.address)
        proxy.open = False
        proxy.cut()
        wait_until(lambda: not far.connected, 180.0, "the loss to be noticed")
        queued = far.handler.async_result()
        far._call(Multi([far.creation(f"{root}/a")]), queued)
        far.shut()
        with pytest.raises(Retry):
            far._await(queued, "creating", writing=True)
    assert client.listing(root)[0] == []
