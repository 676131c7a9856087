"""Section cluster.security on a real ZooKeeper: TLS with client certificates, SASL, digest, and ACLs of new znodes."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from kazoo.security import make_acl, make_digest_acl

from tests.certificates import certify
from tests.configuration import parse
from tests.integration.bookkeeper.tree import Tree
from tests.integration.zookeeper.secured import USERS, SecuredZooKeeper
from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths
from trueup.connectors.bookkeeper.placement.mark_creations import MarkOrder
from trueup.connectors.bookkeeper.placement.marks import Marks
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.connectors.zookeeper.errors import Forbidden
from trueup.connectors.zookeeper.fence import Fence
from trueup.state.common.errors import Retry, Stop
from trueup.streams.bookkeeper import checks

pytestmark = pytest.mark.servers
Connect = Callable[..., ZooKeeperClient]


@pytest.fixture(scope="module")
def secured(new_root: Callable[[], Path]) -> Iterator[SecuredZooKeeper]:
    made = SecuredZooKeeper(new_root())
    made.server.up()
    yield made
    made.close()


@pytest.fixture
def connect(secured: SecuredZooKeeper) -> Iterator[Connect]:
    opened: list[ZooKeeperClient] = []

    def connect(security: Mapping[str, str], tls: bool = False, **options: object) -> ZooKeeperClient:
        opened.append(secured.client(security, tls, **options).open(30.0))
        return opened[-1]

    yield connect
    for client in opened:
        client.shut()


def entries(client: ZooKeeperClient, path: str) -> set[tuple[str, str, int]]:
    return {(one.id.scheme, one.id.id, one.perms) for one in client.get_acls(path)[0]}


@pytest.fixture
def ways(secured: SecuredZooKeeper) -> dict[str, tuple[dict[str, str], bool]]:
    return {
        "certificate": (secured.trust(), True),
        "sasl": (secured.login("sasl"), False),
        "digest": (secured.login("digest"), False),
        "sasl over tls": ({**secured.trust(), **secured.login("sasl")}, True),
    }


@pytest.mark.parametrize(
    ("way", "identities"),
    [
        ("certificate", {("x509", "CN=127.0.0.1")}),
        ("sasl", {("sasl", "trueup")}),
        ("digest", {("digest", "trueup")}),
        ("sasl over tls", {("x509", "CN=127.0.0.1"), ("sasl", "trueup")}),
    ],
)
def test_a_client_is_known_and_owns_what_it_creates(
    way: str,
    identities: set[tuple[str, str]],
    ways: dict[str, tuple[dict[str, str], bool]],
    connect: Connect,
    own_root: str,
) -> None:
    client = connect(*ways[way])
    client.make(own_root)
    assert {(scheme, name.split(":")[0]) for scheme, name, perms in entries(client, own_root) if perms == 31} == (
        identities
    )


def test_many_large_answers_arrive_over_tls(connect: Connect, secured: SecuredZooKeeper, own_root: str) -> None:
    client = connect(secured.trust(), True)
    client.make(own_root)
    names = [f"{number:04}".encode() for number in range(1_000)]
    creations = [client.creation(f"{own_root}/{name.decode()}", name * 300) for name in names]
    for _ in client.commit(creations[at : at + 100] for at in range(0, 1_000, 100)):
        pass
    read = [content for part in client.multi_read(own_root, names) for content, _ in part.rows()]
    assert read == [name * 300 for name in names]


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ("authority", "tls.ca"),
        ("no certificate", "tls.certificate"),
        ("certificate of another authority", "tls.certificate"),
        ("tls to a port without it", r"tls\.\*"),
        ("no tls to a port with it", "tls.ca"),
    ],
)
def test_a_session_that_is_refused_names_the_key_to_change(wrong: str, key: str, secured: SecuredZooKeeper) -> None:
    trust = secured.trust()
    stranger = {"tls.certificate": str(secured.stranger[0]), "tls.key": str(secured.stranger[1])}
    security, tls = {
        "authority": ({**trust, "tls.ca": str(secured.stranger[0])}, True),
        "no certificate": ({"tls.ca": trust["tls.ca"]}, True),
        "certificate of another authority": ({**trust, **stranger}, True),
        "tls to a port without it": (trust, False),
        "no tls to a port with it": ({}, True),
    }[wrong]
    with pytest.raises(Retry, match=rf"cluster\.security\.{key}"):
        secured.client(security, tls).open(3.0)


def test_a_wrong_password_of_sasl_names_its_key(secured: SecuredZooKeeper) -> None:
    wrong = {"sasl.mechanism": "DIGEST-MD5", "sasl.username": "trueup", "sasl.password": "no"}
    with pytest.raises(Stop, match=r"cluster\.security\.sasl\.password"):
        secured.client(wrong).open(30.0)


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        ("tls.ca", "/nowhere.pem", "cluster.security.tls"),
        ("sasl.password", "no", "cluster.security.sasl.password"),
        ("sasl.password.file", "/nowhere", "cluster.security.sasl.password.file"),
    ],
)
def test_doctor_names_the_key_to_change(key: str, value: str, found: str, secured: SecuredZooKeeper) -> None:
    security = secured.trust() if key.startswith("tls.") else secured.login("sasl")
    if key == "sasl.password":
        del security["sasl.password.file"]
    cluster = secured.cluster({**security, key: value}, tls=key.startswith("tls."))
    settings = parse({"cluster": {"zookeeper": cluster.zookeeper, "security": cluster.security}})
    (row,) = checks.all_of(settings)
    assert (row.name, row.status, found in f"{row.found} {row.todo}") == ("zookeeper", "fail", True), row


def test_the_next_connection_uses_a_replaced_certificate(secured: SecuredZooKeeper, tmp_path: Path) -> None:
    stranger = certify(tmp_path)
    client = secured.client(secured.trust(**{"tls.certificate": str(stranger[0]), "tls.key": str(stranger[1])}), True)
    live = client.start_async()
    try:
        wait_until(lambda: client._connection.trouble, 60.0, "a refusal")
        stranger[1].write_bytes(secured.key.read_bytes())
        stranger[0].write_bytes(secured.certificate.read_bytes())
        assert live.wait(60.0)
    finally:
        client.shut()


def test_workers_of_another_identity_can_take_the_marks_that_trueup_creates(
    connect: Connect, secured: SecuredZooKeeper, own_root: str
) -> None:
    workers = connect({}, auth={"digest": f"bookkeeper:{USERS['bookkeeper']}"}, root=own_root)
    workers.default_acl = [
        make_digest_acl("bookkeeper", USERS["bookkeeper"], all=True),
        make_acl("sasl", "trueup", all=True),
    ]
    tree = Tree(workers, own_root)
    tree.ledger(4)
    ours = connect(secured.login("sasl"), root=own_root)
    (outcome,) = Marks(ours, BookKeeperPaths(own_root)).mark([MarkOrder(4, 0, ("a:1",), 1)])
    assert outcome.result == "written", outcome
    path = tree.paths.mark(4)
    assert {name.split(":")[0] for _, name, _ in entries(workers, path)} == {"trueup", "bookkeeper"}
    workers.drop(path, -1)
    workers.drop(path.rpartition("/")[0], -1)
    assert workers.look(path) is None


def test_a_stranger_can_neither_read_nor_change_them(
    connect: Connect, secured: SecuredZooKeeper, own_root: str
) -> None:
    ours = connect(secured.login("sasl"), root=own_root)
    ours.make(own_root)
    ours.make(f"{own_root}/a")
    with pytest.raises(Forbidden):
        connect({}).look(f"{own_root}/a")


def test_the_epoch_of_a_leader_belongs_to_its_identity(
    connect: Connect, secured: SecuredZooKeeper, own_root: str
) -> None:
    ours = connect(secured.login("sasl"))
    Fence(f"{own_root}/epoch", 1, "run", pytest.fail).check(ours)
    assert entries(ours, f"{own_root}/epoch") == {("sasl", "trueup", 31)}
