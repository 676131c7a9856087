"""The admin API of two real brokers with TLS and tokens, and an offloaded ledger of several blocks."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest
import urllib3

from tests.integration.read_priority.secured import SecuredPulsar, token_of
from trueup.connectors.embedded.processes import Port, wait_until
from trueup.connectors.pulsar import offload_index
from trueup.connectors.pulsar.admin.client import PulsarAdmin, scope_of
from trueup.connectors.pulsar.offload_verify import OffloadFacts, Tiered
from trueup.connectors.s3.store import BucketLocation, ObjectStore
from trueup.sandbox.forgetting import listed, offload, unload
from trueup.sandbox.pulsar import BUCKET
from trueup.sandbox.servers.objects import REGION
from trueup.sandbox.servers.security import Security
from trueup.state.read_priority.settings import ReadPrioritySettings
from trueup.state.read_priority.tiers import ReadPriority
from trueup.state.settings.settings import parse
from trueup.streams.catalog import sections
from trueup.streams.read_priority import checks
from trueup.streams.read_priority.stream import admin_of
from trueup.streams.topic_reader.spark.options import options_of
from trueup.streams.topic_reader.spark.source import PulsarLedgers
from trueup.streams.topic_reader.topics import opened

pytestmark = [pytest.mark.servers, pytest.mark.release, pytest.mark.usefixtures("reads_here"), pytest.mark.timeout(600)]
NAMESPACE = "public/default"
TOPIC = f"{NAMESPACE}/large"
COUNT, SIZE, PER_LEDGER = 110, 130_000, 120
"""One ledger of 14 MB. A block has at most 5 MiB, the least that brokers accept."""
ENVIRONMENT = {"T": token_of("admin"), "KEY": "id", "SECRET": "secret"}
Rows = dict[str, str]


@pytest.fixture(scope="module")
def cluster(new_root: Callable[[], Path]) -> Iterator[SecuredPulsar]:
    kept = {"managedLedgerMaxEntriesPerLedger": PER_LEDGER, "managedLedgerOffloadDeletionLagMs": 86_400_000}
    with SecuredPulsar(new_root(), **kept) as made:
        made.up()
        yield made


@pytest.fixture(scope="module")
def ledger(cluster: SecuredPulsar) -> int:
    """The offloaded ledger of the topic."""
    access = pulsar.AuthenticationToken(token_of("admin"))
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(cluster.service_url, authentication=access, logger=quiet)
    for numbers in (range(COUNT), range(COUNT, COUNT + 2)):
        producer = client.create_producer(f"persistent://{TOPIC}", batching_enabled=False, block_if_queue_full=True)
        for number in numbers:
            producer.send_async(content(number), lambda *_: None)
        producer.flush()
        producer.close()
        if numbers.start == 0:
            unload(cluster, TOPIC)
    client.close()
    return offload(cluster, TOPIC)[0]


def content(number: int) -> bytes:
    return b"%d:" % number + number.to_bytes(4, "big") * (SIZE // 4)


def admin(cluster: SecuredPulsar, *addresses: str) -> PulsarAdmin:
    chosen = ReadPrioritySettings(admin=[*addresses], token_env="T", ca=str(cluster.security.certificate))
    return admin_of(chosen, ENVIRONMENT)


def stranger(cluster: SecuredPulsar) -> str:
    """The address of the broker that does not own the topic."""
    cluster.ask("GET", f"persistent/{TOPIC}/internalStats")  # a broker owns it now
    (found,) = [address for address in cluster.secure if raw(cluster, address, "GET").status == 307]
    return found


def raw(cluster: SecuredPulsar, address: str, method: str) -> Any:
    pool = urllib3.PoolManager(ca_certs=str(cluster.security.certificate), retries=False)
    return pool.request(
        method, f"{address}/admin/v2/persistent/{TOPIC}/internalStats", headers=cluster.broker.headers, redirect=False
    )


def test_both_brokers_tell_their_settings(cluster: SecuredPulsar) -> None:
    with admin(cluster, *cluster.secure) as found:
        brokers = found.brokers()
    assert ([one.version for one in brokers.brokers], brokers.problems) == ([(4, 2, 4)] * 2, ())


def test_a_broker_that_is_not_declared_is_reached_by_redirects(cluster: SecuredPulsar, ledger: int) -> None:
    assert ledger
    scope, want = scope_of(TOPIC), ReadPriority.BOOKKEEPER_FIRST
    with admin(cluster, stranger(cluster)) as found:
        policy = found.applied(scope).without_secrets().with_priority(want)
        found.set(scope, policy)
        wait_until(lambda: found.policy(scope).view().priority is want, 180.0, "the policy in force")
        before = listed(cluster, TOPIC)
        found.unload(scope)
        assert listed(cluster, TOPIC)[:-1] == before  # its open ledger was closed, and another one created
        found.remove(scope)
        wait_until(lambda: not found.policy(scope).view().present, 180.0, "the policy gone")


def test_a_broker_that_is_down_is_reported_and_the_other_is_used(cluster: SecuredPulsar) -> None:
    gone = f"https://{Port()}"
    with admin(cluster, gone, cluster.secure[0]) as found:
        brokers = found.brokers()
        assert found.policy(scope_of(NAMESPACE)).view().present is False
    assert ([one.address for one in brokers.brokers], len(brokers.problems)) == ([cluster.secure[0]], 1)


@pytest.fixture
def doctor(cluster: SecuredPulsar, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Rows]:
    """The rows about the admin API with these keys and this token: status by name."""

    def run(token: str = token_of("admin"), **keys: object) -> Rows:
        monkeypatch.setenv("T", token)
        reads = {"admin": cluster.secure, "token_env": "T", "ca": str(cluster.security.certificate), **keys}
        settings = parse({"cluster": {"zookeeper": cluster.zookeeper.address}, "read_priority": reads}, sections())
        return {check.name: check.status for check in checks.all_of(settings)}

    return run


def test_doctor_is_content_with_the_right_keys(cluster: SecuredPulsar, doctor: Callable[..., Rows]) -> None:
    assert doctor() == {f"read_priority.admin: {address}": "ok" for address in cluster.secure}


@pytest.mark.parametrize("token", ["", "no.token", token_of("admin", b"k" * 32), token_of("reader")])
def test_doctor_names_the_key_of_a_token_that_is_refused(doctor: Callable[..., Rows], token: str) -> None:
    assert doctor(token) == {"read_priority.token_env": "fail"}


def test_doctor_names_the_key_of_an_authority_that_is_not_the_brokers(
    doctor: Callable[..., Rows], new_root: Callable[[], Path]
) -> None:
    other = Security(new_root())
    other.make()
    assert [doctor(ca=str(ca)) for ca in (other.certificate, "", other.root / "none.pem", other.root / "keys.p12")] == [
        {"read_priority.ca": "fail"}
    ] * 4


def test_doctor_names_the_key_of_a_wrong_address(cluster: SecuredPulsar, doctor: Callable[..., Rows]) -> None:
    nobody = f"https://{Port()}"
    wrong = cluster.admin_url.replace("http:", "https:")  # it responds without TLS
    assert [doctor(admin=[address]) for address in (nobody, wrong)] == [{"read_priority.admin": "fail"}] * 2
    good = cluster.secure[1]
    assert doctor(admin=[nobody, good]) == {"read_priority.admin": "fail", f"read_priority.admin: {good}": "ok"}


def test_an_offloaded_ledger_of_several_blocks_is_verified_and_read_whole(
    cluster: SecuredPulsar, ledger: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    store = ObjectStore(BucketLocation(BUCKET, REGION, cluster.objects.endpoint, "KEY", "SECRET"), ENVIRONMENT)
    keys = {
        "cluster.zookeeper": cluster.zookeeper.address,
        "stores.a.bucket": BUCKET,
        "stores.a.region": REGION,
        "stores.a.endpoint": cluster.objects.endpoint,
        "stores.a.key_env": "KEY",
        "stores.a.secret_env": "SECRET",
        "topics": TOPIC,
        "priority": "tiered-storage-first",
        "partition_mb": "4",
    }
    with opened(options_of(keys).settings(), options_of(keys).read) as topics:
        (topic,) = topics.partitions(TOPIC)
        info = next(one for one in topics.ledgers(topic) if one.ledger == ledger)
    assert info.copy is not None
    Tiered({"a": store}).verify(info.copy, OffloadFacts(topic.owner, info.entries - 1, info.size))
    key = info.copy.pair.index_key
    head = store.head(key)
    assert head is not None
    index = offload_index.index_of(store.read(key, 0, head.size, head.tag), key)
    assert (len(index.blocks), info.entries) == (3, COUNT)
    source = PulsarLedgers(keys)
    reader = source.reader(source.schema())
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    of_ledger = [row for row in rows if row["ledger"] == ledger]
    assert [row["value"] for row in of_ledger] == [content(number) for number in range(COUNT)]
    assert {row["tier"] for row in of_ledger} == {"tiered"}
