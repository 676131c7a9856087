"""Topics as data frames: what Spark reads equals what Pulsar's own reader gives out."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.integration.reads.topics import KINDS, Seen
from trueup import register
from trueup.state.settings.settings import parse
from trueup.streams.catalog import sections
from trueup.streams.runtime.spark import session as sessions
from trueup.streams.runtime.spark.driver import Driver
from trueup.streams.runtime.spark.listener import Listener

pytestmark = [pytest.mark.servers, pytest.mark.timeout(600)]
Load = Callable[..., DataFrame]


@pytest.fixture(scope="module")
def data(shared_root: Callable[[], Path]) -> Path:
    return shared_root()


@pytest.fixture(scope="module")
def spark(keys: dict[str, str], data: Path) -> Iterator[SparkSession]:
    settings = parse({"cluster": {"zookeeper": keys["cluster.zookeeper"]}, "spark": {"memory": "1g"}}, sections())
    driver = Driver(lambda: sessions.session(settings, data), Listener(lambda _: None))
    driver.begin()
    register(driver.session)
    yield driver.session
    driver.kill()
    driver.close(0.0)


@pytest.fixture
def load(spark: SparkSession, keys: dict[str, str]) -> Load:
    def read(topics: str, schema: str = "", **options: Any) -> DataFrame:
        reader = spark.read.format("pulsar-ledgers").options(**keys, topics=topics, **options)
        return (reader.schema(schema) if schema else reader).load()

    return read


def seen(frame: DataFrame) -> list[Seen]:
    return [
        Seen(
            (row.ledger, row.entry, row.batch_index), (row.key or b"").decode(), (row.ordering_key or b"").decode(),
            row.properties, bytes(row.value), ms(row.publish_time), ms(row.event_time),
        )
        for row in frame.orderBy("ledger", "entry", "batch_index").collect()
    ]  # fmt: skip


def ms(time: Any) -> int:
    return 0 if time is None else round(time.timestamp() * 1_000)


@pytest.mark.parametrize("priority", ["bookkeeper-first", "tiered-storage-first"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_data_frame_has_the_messages_of_pulsars_reader(
    kind: str, priority: str, written: dict[str, list[Seen]], load: Load
) -> None:
    frame = load(kind, priority=priority).cache()
    assert seen(frame) == written[kind]
    tiers = {"bookkeeper"} if priority == "bookkeeper-first" else {"bookkeeper", "tiered"}
    assert {row.tier for row in frame.select("tier").distinct().collect()} == tiers
