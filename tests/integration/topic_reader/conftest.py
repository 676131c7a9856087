"""One Pulsar cluster with tiered storage for all tests of this folder. Its brokers, bookies and store are killed by the
last tests of test_topics.py, which is the last file."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pulsar
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.integration.topic_reader.topics import (
    ALONE,
    BOOKIES_FIRST,
    CHUNK,
    COUNT,
    KEEPS_MS,
    KINDS,
    NAMESPACE,
    PER_LEDGER,
    SECRET,
    Load,
    Read,
    Seen,
    Start,
    Steps,
    as_pulsar,
    confirmed,
    full,
    seen,
    write,
)
from tests.objects import client_of as objects_of
from trueup import register
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.connectors.zookeeper.session import client_of
from trueup.sandbox.forgetting import offload, unload
from trueup.sandbox.pulsar import BUCKET, SandboxPulsar
from trueup.sandbox.servers.objects import REGION
from trueup.state.settings.settings import ClusterSettings, parse
from trueup.streams.catalog import sections
from trueup.streams.cli.main import invoke
from trueup.streams.config.file import load as load_settings
from trueup.streams.runtime.spark import session as sessions
from trueup.streams.runtime.spark.driver import Driver
from trueup.streams.runtime.spark.listener import Listener
from trueup.streams.topic_reader.reader import Range, ReadOptions, ReadReport
from trueup.streams.topic_reader.topics import opened

METADATA = [
    f"org.apache.pulsar.common.intercept.{name}MetadataInterceptor" for name in ("AppendIndex", "AppendBrokerTimestamp")
]
"""Brokers write metadata of their own in front of each entry (PIP-70)."""


@pytest.fixture(scope="package")
def cluster(shared_root: Callable[[], Path]) -> Iterator[SandboxPulsar]:
    settings = {
        "managedLedgerMaxEntriesPerLedger": PER_LEDGER,
        "managedLedgerOffloadDeletionLagMs": KEEPS_MS,
        "maxMessageSize": CHUNK,
        "brokerEntryMetadataInterceptors": ",".join(METADATA),
    }
    with SandboxPulsar(shared_root(), settings=settings, tiered=True) as made:
        made.up()
        yield made


@pytest.fixture(scope="package")
def client(cluster: SandboxPulsar) -> Iterator[pulsar.Client]:
    made = pulsar.Client(cluster.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield made
    made.close()


@pytest.fixture(scope="package")
def store(cluster: SandboxPulsar) -> Any:
    return objects_of(cluster.objects.endpoint)


@pytest.fixture(scope="package")
def keys(cluster: SandboxPulsar) -> Iterator[dict[str, str]]:
    """The configuration, by key. The credentials are in the environment."""
    values = {
        "cluster.zookeeper": cluster.zookeeper.address,
        "stores.archive.bucket": BUCKET,
        "stores.archive.region": REGION,
        "stores.archive.endpoint": cluster.objects.endpoint,
        "stores.archive.key_env": "READS_KEY",
        "stores.archive.secret_env": "READS_SECRET",
    }
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("READS_KEY", "id")
        environment.setenv("READS_SECRET", SECRET)
        yield values


@pytest.fixture(scope="package")
def written(cluster: SandboxPulsar, client: pulsar.Client) -> dict[str, list[Seen]]:
    """Topics of every kind, all of whose ledgers but the open one are also offloaded, with their messages."""
    for name, options in KINDS.items():
        write(client, name, range(COUNT if name != "chunked" else 12), **options)
        unload(cluster, f"{NAMESPACE}/{name}")
        write(client, name, range(1_000, 1_003), **ALONE)
        offload(cluster, f"{NAMESPACE}/{name}")
    return {name: confirmed(as_pulsar(client, name)) for name in KINDS}


@pytest.fixture(scope="package")
def data(shared_root: Callable[[], Path]) -> Path:
    return shared_root()


@pytest.fixture(scope="package")
def spark(keys: dict[str, str], data: Path) -> Iterator[SparkSession]:
    settings = parse({"cluster": {"zookeeper": keys["cluster.zookeeper"]}, "spark": {"memory": "1g"}}, sections())
    driver = Driver(lambda: sessions.session(settings, data), Listener(lambda _: None))
    driver.begin()
    register(driver.session)
    yield driver.session
    driver.kill()
    driver.close(0.0)


@pytest.fixture
def start(keys: dict[str, str]) -> Start:
    @contextmanager
    def reading(topic: str, options: ReadOptions = BOOKIES_FIRST) -> Iterator[tuple[Steps, ReadReport]]:
        with opened(load_settings(None, {}, keys, sections()), options) as topics:
            (one,) = topics.partitions(full(topic))
            yield topics.read(one, Range()), topics.report

    return reading


@pytest.fixture
def load(spark: SparkSession, keys: dict[str, str]) -> Load:
    def read(topics: str, schema: str = "", **options: Any) -> DataFrame:
        reader = spark.read.format("pulsar-ledgers").options(**keys, topics=topics, **options)
        return (reader.schema(schema) if schema else reader).load()

    return read


@pytest.fixture
def trueup(keys: dict[str, str], capsys: pytest.CaptureFixture[str]) -> Callable[..., Read]:
    def run(topic: str, *words: str) -> Read:
        pairs = [word for name, value in keys.items() for word in ("--set", f"{name}={value}")]
        capsys.readouterr()
        code = invoke(["read", f"{NAMESPACE}/{topic}", "-o", "json", *words, *pairs])
        captured = capsys.readouterr()
        rows = [json.loads(line) for line in captured.out.splitlines()]
        return Read(code, [*map(seen, rows)], [row["tier"] for row in rows], captured.err)

    return run


@pytest.fixture
def zookeeper(cluster: SandboxPulsar) -> Iterator[ZooKeeperClient]:
    client = client_of(ClusterSettings(zookeeper=cluster.zookeeper.address)).open()
    yield client
    client.shut()
