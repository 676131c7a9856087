"""Topics whose names look like those of others, and topics without ledgers of their own, as a real broker has them."""

import json
from collections.abc import Callable, Iterable, Sequence

import pulsar
import pytest
from pulsar.schema import StringSchema

from tests.integration.topic_reader.topics import (
    ALONE,
    BOOKIES_FIRST,
    NAMESPACE,
    PER_LEDGER,
    Read,
    Seen,
    as_pulsar,
    confirmed,
    write,
)
from trueup.connectors.pulsar.admin.client import PulsarAdmin
from trueup.connectors.pulsar.admin.http import AdminHttp
from trueup.connectors.pulsar.layout import PulsarPaths
from trueup.connectors.pulsar.metadata import SHADOW, managed_ledger
from trueup.connectors.pulsar.queries import owned
from trueup.connectors.pulsar.schemas import SchemaType
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.sandbox.forgetting import session, truncate
from trueup.sandbox.pulsar import SandboxPulsar
from trueup.state.deletion.owned_ledgers import NO_LEDGERS, nodes_of
from trueup.state.deletion.owners import OwnerStatus
from trueup.state.deletion.verdicts import judge
from trueup.state.read_priority.copies import LedgerCopies
from trueup.state.read_priority.settings import ReadPrioritySettings
from trueup.state.read_priority.view import TopicView
from trueup.streams.catalog import sections
from trueup.streams.config.file import load as load_settings
from trueup.streams.read_priority.copies import LedgerToCheck
from trueup.streams.read_priority.observer import Observer
from trueup.streams.terminal import codes
from trueup.streams.topic_reader.topics import opened

pytestmark = [pytest.mark.servers, pytest.mark.timeout(600)]
LIKE_PARTITIONS = ("like-partition-01", "like-partition-20260101120000", "like-partition-0-sub-COPY")
LIKE_SYSTEM = ("like__change_events", "like__healthcheck", "like__transaction_history", "like__load_balancer_stats")


def shadow(cluster: SandboxPulsar, source: str, name: str) -> None:
    """Create a shadow topic, as the admin client does (PIP-180). The broker loads it."""
    cluster.ask("PUT", f"persistent/{NAMESPACE}/{name}", {SHADOW.decode(): f"persistent://{NAMESPACE}/{source}"})


@pytest.fixture(scope="module")
def like(cluster: SandboxPulsar, client: pulsar.Client) -> dict[str, list[Seen]]:
    """A partitioned topic, and topics of their own with names like its partitions or like system topics."""
    cluster.ask("PUT", f"persistent/{NAMESPACE}/like/partitions", 2)
    names = ("like-partition-0", "like-partition-1", *LIKE_PARTITIONS, *LIKE_SYSTEM)
    for name in names:
        write(client, name, range(3), **ALONE)
    return {name: confirmed(as_pulsar(client, name)) for name in names}


def test_topics_with_names_like_partitions_are_not_read_as_partitions(
    like: dict[str, list[Seen]], trueup: Callable[..., Read]
) -> None:
    assert trueup("like").messages == like["like-partition-0"] + like["like-partition-1"]
    assert [trueup(name).messages for name in LIKE_PARTITIONS] == [like[name] for name in LIKE_PARTITIONS]


def test_an_expression_leaves_out_no_topic_of_users(like: dict[str, list[Seen]], keys: dict[str, str]) -> None:
    with opened(load_settings(None, {}, keys, sections()), BOOKIES_FIRST) as topics:
        found = topics.matching(NAMESPACE, "/like.*/")
    assert [(one.local, one.partition) for one in found] == sorted(
        (name, {"like-partition-0": 0, "like-partition-1": 1}.get(name, -1)) for name in like
    )


def test_of_a_topic_with_and_without_partitions_the_partitions_are_read_as_clients_read_them(
    cluster: SandboxPulsar, client: pulsar.Client, trueup: Callable[..., Read], keys: dict[str, str]
) -> None:
    write(client, "twofold", range(3), **ALONE)
    with session(cluster.zookeeper.address) as zookeeper:  # brokers refuse to create both now
        node = f"/admin/partitioned-topics/{NAMESPACE}/persistent/twofold"
        zookeeper.create(node, b'{"partitions":2}', makepath=True)
    for number in range(2):
        write(client, f"twofold-partition-{number}", range(4), **ALONE)
    expected = [one for number in range(2) for one in confirmed(as_pulsar(client, f"twofold-partition-{number}"))]
    assert trueup("twofold").messages == expected
    with opened(load_settings(None, {}, keys, sections()), BOOKIES_FIRST) as topics:
        assert [one.local for one in topics.matching(NAMESPACE, "/twofold/")] == [
            "twofold-partition-0",
            "twofold-partition-1",
        ]


def test_partitions_without_a_partitioned_topic_are_named_in_the_refusal(
    cluster: SandboxPulsar, client: pulsar.Client, trueup: Callable[..., Read]
) -> None:
    cluster.ask("PUT", f"persistent/{NAMESPACE}/alone/partitions", 1)
    write(client, "alone-partition-0", range(3), **ALONE)
    with session(cluster.zookeeper.address) as zookeeper:
        zookeeper.delete(f"/admin/partitioned-topics/{NAMESPACE}/persistent/alone")
    found = trueup("alone")
    assert (found.code, "alone-partition-0" in found.errors) == (codes.REFUSED, True)
    assert len(trueup("alone-partition-0").messages) == 2


def test_a_shadow_topic_is_read_from_the_ledgers_of_its_source(
    cluster: SandboxPulsar, client: pulsar.Client, trueup: Callable[..., Read]
) -> None:
    write(client, "origin", range(PER_LEDGER + 5), **ALONE)
    shadow(cluster, "origin", "shadow")
    write(client, "origin", range(1_000, 1_003 + 2 * PER_LEDGER), **ALONE)
    assert trueup("shadow").messages == confirmed(as_pulsar(client, "origin"))


def test_a_shadow_topic_has_the_schema_of_its_source(
    cluster: SandboxPulsar, client: pulsar.Client, keys: dict[str, str]
) -> None:
    producer = client.create_producer(f"persistent://{NAMESPACE}/typed", schema=StringSchema())
    producer.send("x")
    producer.close()
    shadow(cluster, "typed", "typed-shade")
    with opened(load_settings(None, {}, keys, sections()), BOOKIES_FIRST) as topics:
        (one,) = topics.partitions(f"{NAMESPACE}/typed-shade")
        latest = topics.schemas(one).latest()
    assert latest is not None
    assert latest.kind == SchemaType.STRING


def test_partitions_of_a_shadow_topic_are_read_from_those_of_its_source(
    cluster: SandboxPulsar, client: pulsar.Client, trueup: Callable[..., Read]
) -> None:
    cluster.ask("PUT", f"persistent/{NAMESPACE}/origins/partitions", 2)
    with session(cluster.zookeeper.address) as zookeeper:  # as the admin client creates it
        node = f"/admin/partitioned-topics/{NAMESPACE}/persistent/shadows"
        record = {"partitions": 2, "properties": {SHADOW.decode(): f"persistent://{NAMESPACE}/origins"}}
        zookeeper.create(node, json.dumps(record).encode())
    for number in range(2):
        write(client, f"origins-partition-{number}", range(5), **ALONE)
        assert as_pulsar(client, f"shadows-partition-{number}")
        write(client, f"origins-partition-{number}", range(10, 17 + PER_LEDGER), **ALONE)
    expected = [one for number in range(2) for one in confirmed(as_pulsar(client, f"origins-partition-{number}"))]
    assert trueup("shadows").messages == expected


def test_no_ledger_is_missing_because_the_node_of_a_shadow_topic_still_lists_it(
    cluster: SandboxPulsar, client: pulsar.Client, zookeeper: ZooKeeperClient
) -> None:
    write(client, "cut", range(3 * PER_LEDGER), **ALONE)
    shadow(cluster, "cut", "shade")
    paths, owner = PulsarPaths(), f"{NAMESPACE}/persistent/shade"
    removed = truncate(cluster, f"{NAMESPACE}/cut")
    raw = zookeeper.look(paths.node(owner))
    assert raw is not None
    assert {*removed} & {*managed_ledger(raw[0], owner).ledgers}
    (node,) = owned(zookeeper, paths, [owner], 0)[owner]
    assert (node.status, len(judge(NO_LEDGERS, nodes_of([node]))[0])) == (OwnerStatus.SHADOW, 0)


class NoChecks:
    """Notes which ledgers would be checked, by topic and managed ledger."""

    def __init__(self) -> None:
        self.owners = dict[str, set[str]]()

    def check(self, ledgers: Sequence[LedgerToCheck], *_: object) -> None:
        for one in ledgers:
            self.owners.setdefault(one.name, set()).add(one.owner)

    def of(self, ledgers: Iterable[LedgerToCheck]) -> tuple[LedgerCopies, ...]:
        return tuple(LedgerCopies(one.part, one.info) for one in ledgers)


def observed(cluster: SandboxPulsar, zookeeper: ZooKeeperClient, names: str, checks: NoChecks) -> dict[str, TopicView]:
    """What the stream of priorities observes of the topics of `NAMESPACE` whose names match an expression."""
    with PulsarAdmin(AdminHttp([cluster.admin_url])) as admin:
        observer = Observer(admin, lambda: zookeeper, PulsarPaths(), checks, lambda: 1)  # type: ignore[arg-type]
        chosen = ReadPrioritySettings(declared={f"/{NAMESPACE}/{names}/": "bookkeeper-first"})
        topics = observer.observe(chosen, (), lambda _: False).topics
    found = {topic.local: topic for topic in topics}
    assert len(found) == len(topics)
    return found


def test_priorities_are_those_of_topics_that_exist(
    cluster: SandboxPulsar, client: pulsar.Client, zookeeper: ZooKeeperClient, like: dict[str, list[Seen]]
) -> None:
    write(client, "like-origin", range(PER_LEDGER + 5), **ALONE)
    shadow(cluster, "like-origin", "like-shadow")
    write(client, "like-origin", range(PER_LEDGER), **ALONE)
    with session(cluster.zookeeper.address) as kazoo:  # a system topic; brokers create it for transactions only
        kazoo.create(f"/managed-ledgers/{NAMESPACE}/persistent/like__transaction_pending_ack", b"")
    checks = NoChecks()
    found = observed(cluster, zookeeper, "like.*", checks)
    expected = {"like", "like-origin", "like-shadow", *like} - {"like-partition-0", "like-partition-1"}
    assert {name: topic.problem for name, topic in found.items()} == dict.fromkeys(expected, "")
    source = {f"{NAMESPACE}/persistent/like-origin"}
    assert (checks.owners[f"{NAMESPACE}/like-shadow"], checks.owners[f"{NAMESPACE}/like-origin"]) == (source, source)


def test_nothing_is_known_of_a_topic_with_an_unreadable_partition(
    cluster: SandboxPulsar, zookeeper: ZooKeeperClient
) -> None:
    with session(cluster.zookeeper.address) as kazoo:
        kazoo.create(f"/admin/partitioned-topics/{NAMESPACE}/persistent/torn", b'{"partitions":2}', makepath=True)
        for number, content in enumerate([b"", b"\x08\x01"]):
            kazoo.create(f"/managed-ledgers/{NAMESPACE}/persistent/torn-partition-{number}", content)
    found = observed(cluster, zookeeper, "torn.*", NoChecks())
    assert {name: topic.policy for name, topic in found.items()} == {"torn": None}
    assert "torn-partition-1" in found["torn"].problem
