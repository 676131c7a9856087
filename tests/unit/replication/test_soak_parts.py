"""What the soak of links relies on: which records applications pass on, keys of writers, and faults that fail."""

import time
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.replication.faults import Faults
from tests.replication.passing import is_passed_on
from tests.replication.sizes import kind_of
from tests.replication.writers import OLD, Site, Writer


class Told:
    """A producer that notes the arguments of each record."""

    def __init__(self) -> None:
        self.records: list[dict[str, object]] = []

    def produce(self, topic: str, value: bytes, key: str, **more: object) -> None:
        self.records.append({"topic": topic, "key": key, **more})

    def poll(self, _limit_s: float) -> None:
        pass


def written(kind: str, suffix: str = "") -> dict[str, object]:
    """The first record of a writer."""
    told = Told()
    Writer(Site("east", "", "orders"), kind, 1.0, suffix)._write_due(told, 0.0, kind)  # type: ignore[arg-type]
    return told.records[0]


@pytest.mark.parametrize(
    ("key", "wanted"),
    [
        (b"west|idempotent|8", True),
        (b"east|idempotent|8", False),
        (b"west|passed-orders|8", False),
        (b"west|idempotent|5", False),
    ],
    ids=["copy", "own", "passed on before", "not of the share"],
)
def test_an_application_passes_a_share_of_the_copies_on(key: bytes, wanted: bool) -> None:
    assert is_passed_on(key, "east") is wanted


def test_applications_pass_records_of_all_partitions_on() -> None:
    assert {number % 2 for number in range(100) if is_passed_on(b"west|zipped|%d" % number, "east")} == {0, 1}


def test_the_keys_of_a_later_writer_differ() -> None:
    assert written("idempotent", "-1")["key"] == "east|idempotent-1|0"


def test_records_for_format_v1_have_no_headers() -> None:
    assert [written(kind)["headers"] for kind in (OLD, "idempotent")] == [[], [("trace", b"0")]]


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("java -cp jars org.apache.spark.deploy.SparkSubmit pyspark-shell", "Spark's JVM"),
        ("java -cp jars kafka.Kafka server.properties", "embedded journal"),
        ("python -m pyspark.daemon pyspark.worker", "Python workers"),
        ("python -m trueup.streams.cli.main run -c trueup.yaml", "driver"),
    ],
)
def test_memory_is_counted_by_kind_of_process(command: str, wanted: str) -> None:
    assert kind_of(command.split()) == wanted


def test_a_writer_does_not_exceed_its_rate() -> None:
    told, writer = Told(), Writer(Site("east", "", "orders"), "idempotent", 0.001)
    writer._write_due(told, time.monotonic(), "idempotent")  # type: ignore[arg-type]
    assert told.records == []


@pytest.mark.parametrize("error", [KafkaException(KafkaError(KafkaError._TIMED_OUT)), AssertionError("up")])
def test_an_error_of_a_fault_is_raised_at_the_end(error: Exception) -> None:
    def act() -> None:
        raise error

    kinds: dict[str, Callable[[], None]] = {"fault": act}
    with pytest.raises(type(error)), Faults(kinds, 0.0, 1) as faults:
        assert faults.wait_failed(60.0)
