"""A cluster whose brokers accept only signed requests (ACL 2.0) over TLS."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.rocketmq import administration
from tests.integration.rocketmq.clusters import BORN_MS, Cluster, keys_for, read, running, wait_for_end
from trueup.connectors.contract import Assignment, Lease, LogId, Position
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.replication.headers import marks
from trueup.connectors.replication.ports import Columns
from trueup.connectors.replication.tail import Bounds, CopiedRecord, TailSearch
from trueup.connectors.rocketmq.client import messages, rights
from trueup.connectors.rocketmq.client.connection import ConnectionOptions, RocketMqConnection
from trueup.connectors.rocketmq.protocol import batch, properties
from trueup.connectors.rocketmq.replication.reader import RocketMqReader
from trueup.connectors.rocketmq.replication.records import names
from trueup.connectors.rocketmq.replication.writer import RocketMqWriter
from trueup.sandbox.servers.rocketmq import Tls
from trueup.state.common.errors import Retry, Stop, TrueupError
from trueup.state.replication.provenance import HEADER

pytestmark = pytest.mark.servers
ADMIN, BROKER, TOPIC = ("admin", "adminsecret12"), "broker-a", "orders"
LINK = {"username": "link", "userType": "Normal", "userStatus": "enable"}


def granted(*entries: tuple[str, str]) -> rights.Rights:
    """Rights of the user link: resource and actions."""
    policy = [
        {"resource": resource, "actions": actions.split(), "sourceIps": ["127.0.0.1"], "decision": "Allow"}
        for resource, actions in entries
    ]
    return {"subject": "User:link", "policies": [{"policyType": "Custom", "entries": policy}]}


@pytest.fixture(scope="module")
def keys(new_root: Callable[[], Path]) -> Tls:
    return keys_for(new_root())


@pytest.fixture(scope="module")
def cluster(new_root: Callable[[], Path], keys: Tls) -> Iterator[Cluster]:
    name, secret = ADMIN
    options = {"access_key": name, "secret_key": secret, "tls_ca": str(keys.certificate)}
    with running(new_root, user=ADMIN, tls=keys, **options) as started:
        administration.put_user(started.client, BROKER, LINK, "linksecret1")
        yield started


@pytest.fixture(scope="module")
def log(cluster: Cluster) -> LogId:
    return cluster.new_topic(TOPIC)[0]


@pytest.fixture
def link(cluster: Cluster, log: LogId) -> Iterator[RocketMqConnection]:
    """A connection of the user link, without rights unless a test grants some."""
    with cluster.as_user(access_key="link", secret_key="linksecret1") as client, client.connect(BROKER) as made:
        yield made
    if "User:link" in rights.rights(cluster.client, BROKER):
        rights.drop_rights(cluster.client, BROKER, "User:link")


def refusal(connection: RocketMqConnection, request: messages.RocketMqRequest) -> str:
    """The error of a request; empty if it is accepted."""
    try:
        connection.ask(request)
    except TrueupError as error:
        return str(error)
    return ""


def test_signed_requests_of_every_kind_are_accepted(cluster: Cluster, log: LogId) -> None:
    with cluster.client.connect(BROKER) as connection:
        body = batch.encode([b"\x00\xff", b"two"], [b"a\x01\xc3\xbc\x02", b""], [0, 0])
        messages.sent(connection.ask(messages.send_batch(log, body, BORN_MS)))
        messages.sent(connection.ask(messages.send(log, b"\x80three", BORN_MS, properties.encoded({"own": "ü€𝄞"}))))
        wait_for_end(connection, log, 3)
        assert [*map(bytes, read(connection, log, 0).bodies)] == [b"\x00\xff", b"two", b"\x80three"]


@pytest.mark.parametrize(
    ("options", "found", "todo"),
    [
        ({"access_key": "", "secret_key": ""}, "username cannot be null", "set access_key and secret_key"),
        ({"secret_key": "wrong"}, "signature failed", "correct the secret key"),
        ({"access_key": "nobody"}, "is not found", "create the user"),
    ],
)
def test_other_credentials_are_refused_with_what_to_do(
    cluster: Cluster, log: LogId, options: dict[str, str], found: str, todo: str
) -> None:
    with cluster.as_user(**options) as client, client.connect(BROKER) as connection:
        with pytest.raises(Stop, match=found) as refused:
            connection.ask(messages.send(log, b"x", BORN_MS))
        assert todo in refused.value.todo


def test_a_missing_right_is_named_until_it_is_granted(cluster: Cluster, log: LogId, link: RocketMqConnection) -> None:
    wanted = messages.send(log, b"x", BORN_MS)
    before = refusal(link, wanted)
    rights.put_rights(cluster.client, BROKER, granted((f"Topic:{TOPIC}", "Pub")))
    wait_until(lambda: not refusal(link, wanted), 180.0, "the right to write")
    assert "no permission to access Topic:orders" in before
    assert "grant this right" in before


def test_reading_needs_rights_on_topic_and_group(cluster: Cluster, log: LogId, link: RocketMqConnection) -> None:
    wanted = messages.pull(log, 0, 1)
    rights.put_rights(cluster.client, BROKER, granted((f"Topic:{TOPIC}", "Sub Get")))
    wait_until(lambda: f"Group:{messages.READERS}" in refusal(link, wanted), 180.0, "a refusal that names the group")
    rights.put_rights(cluster.client, BROKER, granted((f"Group:{messages.READERS}", "Sub")), merge=True)
    wait_until(lambda: not refusal(link, wanted), 180.0, "the right to read")
    assert refusal(link, messages.end_offset(log)) == ""


def test_a_link_needs_no_other_rights(cluster: Cluster, log: LogId, link: RocketMqConnection) -> None:
    wanted = granted((f"Topic:{TOPIC}", "Pub Sub Get"), (f"Group:{messages.READERS}", "Sub"))
    rights.put_rights(cluster.client, BROKER, wanted)
    wait_until(lambda: not refusal(link, messages.pull(log, 0, 1)), 180.0, "the rights")
    with cluster.as_user(access_key="link", secret_key="linksecret1") as client:
        end = client.endpoint
    lease = Lease("link", end, end, 7, "records", (Assignment(log, log, Position(), 0),))
    with closing(RocketMqReader(lease)) as reader, closing(RocketMqWriter(lease)) as writer:
        [before] = reader.bounds([log]).values()
        assert isinstance(before, Bounds)
        copied = [(names.RAW, b"a\x011\x02"), (HEADER, b"east"), *marks(b"a prefix", [5])]
        rows = Columns([0], [None], [b"copied"], [BORN_MS], [copied])
        written = writer.write({log: rows})[log]
        [after] = writer.bounds([log]).values()
        assert isinstance(after, Bounds)
        search = TailSearch(after, {b"a prefix": before.end})
        writer.tails().run({log: search})
        reader.seek({log: before.end})
        read = reader.poll(1, 10.0)[log]
    assert (list(written.offsets), written.error, list(read.records.values)) == ([before.end], None, [b"copied"])
    assert search.met == {b"a prefix": [CopiedRecord(5, before.end)]}


def test_rights_merge_and_go_only_as_a_whole(cluster: Cluster, link: RocketMqConnection) -> None:
    client = cluster.client
    rights.put_rights(client, BROKER, granted(("Topic:a", "Pub")))
    rights.put_rights(client, BROKER, granted(("Topic:b", "Sub")), merge=True)
    found = rights.rights(client, BROKER)["User:link"]
    rights.drop_rights(client, BROKER, "User:link")
    assert {entry["resource"] for policy in found["policies"] for entry in policy["entries"]} == {"Topic:a", "Topic:b"}
    assert "User:link" not in rights.rights(client, BROKER)


def test_users_are_listed_without_passwords_and_removed(cluster: Cluster) -> None:
    client = cluster.client
    administration.put_user(client, BROKER, {**LINK, "username": "other"}, "othersecret1")
    administration.put_user(
        client, BROKER, {**LINK, "username": "other", "userStatus": "disable"}, "othersecret2", new=False
    )
    found = rights.users(client, BROKER)
    administration.drop_user(client, BROKER, "other")
    assert found["other"] == {"username": "other", "userType": "Normal", "userStatus": "disable"}
    assert "password" not in str(found)
    assert "other" not in rights.users(client, BROKER)


def test_a_certificate_that_is_not_trusted_stops(cluster: Cluster) -> None:
    with cluster.as_user(tls_ca="system") as client, pytest.raises(Stop, match="certificate verify failed"):
        client.masters()


def test_a_connection_without_tls_is_closed_by_the_broker(cluster: Cluster, log: LogId) -> None:
    with RocketMqConnection(cluster.brokers[BROKER].address, ConnectionOptions()) as plain, pytest.raises(Retry):
        plain.ask(messages.end_offset(log))
