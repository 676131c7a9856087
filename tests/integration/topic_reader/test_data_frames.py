"""Topics as data frames: what Spark reads equals what Pulsar's own reader gives out."""

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial, reduce
from pathlib import Path
from typing import Any

import psutil
import pulsar
import pytest
import yaml
from pulsar.schema import AvroSchema, JsonSchema, Long, Record, String, StringSchema
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.integration.topic_reader.topics import (
    ALONE,
    KINDS,
    NAMESPACE,
    PER_LEDGER,
    SECRET,
    Load,
    Seen,
    as_pulsar,
    confirmed,
    rows_seen,
    write,
)
from trueup.connectors.embedded.processes import wait_until
from trueup.sandbox.forgetting import listed, path, session
from trueup.sandbox.pulsar import SandboxPulsar

pytestmark = [pytest.mark.servers, pytest.mark.release, pytest.mark.timeout(600)]


@pytest.mark.parametrize("priority", ["bookkeeper-first", "tiered-storage-first"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_data_frame_has_the_messages_of_pulsars_reader(
    kind: str, priority: str, written: dict[str, list[Seen]], load: Load
) -> None:
    frame = load(kind, priority=priority).cache()
    assert rows_seen(frame) == written[kind]
    tiers = {"bookkeeper"} if priority == "bookkeeper-first" else {"bookkeeper", "tiered"}
    assert {row.tier for row in frame.select("tier").distinct().collect()} == tiers


def test_only_named_columns_are_read(written: dict[str, list[Seen]], load: Load) -> None:
    rows = load("lz4", "value binary, entry bigint").orderBy("entry").collect()
    assert sorted(bytes(row.value) for row in rows) == sorted(message.value for message in written["lz4"])


def test_a_range_of_one_topic_is_read(written: dict[str, list[Seen]], load: Load) -> None:
    messages = written["plain"]
    limits = {"from": "{}:{}".format(*messages[25].id), "to": "{}:{}".format(*messages[70].id)}
    assert rows_seen(load("plain", **limits)) == messages[25:71]


def test_a_pattern_reads_all_topics_and_partitions_that_match(
    cluster: SandboxPulsar, client: pulsar.Client, load: Load
) -> None:
    cluster.ask("PUT", f"persistent/{NAMESPACE}/many/partitions", 2)
    names = ["many-partition-0", "many-partition-1", "many-more"]
    for name in names:
        write(client, name, range(5), **ALONE)
    rows = load("/many.*/").groupBy("topic", "partition").count().collect()
    assert {(row.topic.rpartition("/")[2], row.partition, row["count"]) for row in rows} == {
        ("many-partition-0", 0, 4),
        ("many-partition-1", 1, 4),
        ("many-more", -1, 4),
    }


def test_entries_that_no_tier_has_fail_the_read_or_are_skipped_and_logged(
    cluster: SandboxPulsar, client: pulsar.Client, data: Path, load: Load
) -> None:
    write(client, "holes", range(3 * PER_LEDGER + 5), **ALONE)
    expected, lost = confirmed(as_pulsar(client, "holes")), listed(cluster, f"{NAMESPACE}/holes")[1]
    with session(cluster.zookeeper.address) as zookeeper:
        content = zookeeper.get(path(lost))[0]
        zookeeper.delete(path(lost))
        with pytest.raises(PySparkException, match=f"entries 0 to entry {PER_LEDGER - 1} of ledger {lost}"):
            load("holes").collect()
        skipped = rows_seen(load("holes", missing="skip"))
        zookeeper.create(path(lost), content)
    assert skipped == [message for message in expected if message.id[0] != lost]
    assert f"ledger={lost} entries=0-{PER_LEDGER - 1} messages=0" in (data / "spark.out").read_text()


def test_an_invalid_option_is_an_error_that_names_it(load: Load) -> None:
    with pytest.raises(PySparkException, match="missing: expected error or skip; found 'stop'"):
        load("plain", missing="stop")


def test_a_topic_that_does_not_exist_is_refused(load: Load) -> None:
    with pytest.raises(PySparkException, match=f"expected topic persistent://{NAMESPACE}/nothing"):
        load("nothing").collect()


FIELDS: list[dict[str, Any]] = [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}]
MORE = {"name": "more", "type": ["null", "int"], "default": None}


def send(client: pulsar.Client, topic: str, schema: Any, values: list[Any]) -> None:
    """Write values, and one more without which the last would not be readable."""
    producer = client.create_producer(f"persistent://{NAMESPACE}/{topic}", schema=schema, **ALONE)
    for value in values:
        producer.send(value)
    producer.close()


def test_values_have_the_types_of_the_topics_avro_schema_in_force(client: pulsar.Client, load: Load) -> None:
    for fields, more in ((FIELDS, {}), ([*FIELDS, MORE], {"more": 5})):
        schema = AvroSchema(None, {"type": "record", "name": "Order", "fields": fields})
        send(client, "avro", schema, [{"id": at, "name": f"n{at}", **more} for at in range(4)])
    for value_type in ("avro", "auto"):
        rows = load("avro", value_type=value_type).select("entry", "value.*").orderBy("more", "entry").collect()
        expected = [(at, f"n{at}", None) for at in range(4)] + [(at, f"n{at}", 5) for at in range(3)]
        assert [(row.id, row.name, row.more) for row in rows] == expected


class Order(Record):
    id = Long()
    name = String()


def test_values_have_the_types_of_a_json_or_string_schema(client: pulsar.Client, load: Load) -> None:
    send(client, "json", JsonSchema(Order), [Order(id=at, name=f"n{at}") for at in range(4)])
    send(client, "text", StringSchema(), ["a", "ä", "c"])
    records = load("json", value_type="auto").select("entry", "value.*").orderBy("entry").collect()
    assert [(row.id, row.name) for row in records] == [(at, f"n{at}") for at in range(3)]
    texts = load("text", value_type="auto").orderBy("entry").collect()
    assert [row.value for row in texts] == ["a", "ä"]


def test_values_of_a_primitive_schema_are_numbers(cluster: SandboxPulsar, client: pulsar.Client, load: Load) -> None:
    write(client, "number", range(1), **ALONE)
    cluster.ask("POST", f"schemas/{NAMESPACE}/number/schema", {"type": "INT32", "schema": "", "properties": {}})
    producer = client.create_producer(f"persistent://{NAMESPACE}/number", **ALONE)
    for number in (1, -2, 3):
        producer.send(number.to_bytes(4, "big", signed=True))
    producer.close()
    rows = load("number", value_type="auto", undecodable="null").orderBy("entry").collect()
    assert [row.value for row in rows] == [None, 1, -2]


def test_no_secret_is_in_the_plan(written: dict[str, list[Seen]], load: Load) -> None:
    frame = load("plain", priority="tiered-storage-first")
    frame.collect()
    assert SECRET not in frame._jdf.queryExecution().toString()


def test_the_example_of_the_manual_runs(
    written: dict[str, list[Seen]],
    keys: dict[str, str],
    spark: SparkSession,
    shared_root: Callable[[], Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    root, sections, names = shared_root(), dict[str, Any](), dict[str, Any]()
    for name, value in keys.items():
        *path, leaf = name.split(".")
        reduce(lambda part, word: part.setdefault(word, {}), path, sections)[leaf] = value
    (root / "trueup.yaml").write_text(yaml.safe_dump(sections))
    page = (Path(__file__).parents[3] / "docs" / "reads.md").read_text()
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        block = block.replace("/etc/trueup.yaml", f"{root}/trueup.yaml").replace("/data/", f"{root}/")
        exec(block.replace("tenant/namespace/orders", f"{NAMESPACE}/plain"), names)
    assert f"|{len(written['plain'])}|" in capsys.readouterr().out.replace(" ", "")
    assert rows_seen(spark.read.parquet(f"{root}/orders")) == written["plain"]


class Copy:
    """A stream to Parquet files in a process of its own, and its checkpoint."""

    def __init__(self, root: Path, options: dict[str, str]) -> None:
        self.root, self.processes = root, list["subprocess.Popen[bytes]"]()
        (root / "options.json").write_text(json.dumps(options))

    def run(self, *words: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "tests.integration.topic_reader.drive_stream", str(self.root), *words]
        with (self.root / "driver.log").open("ab") as log:
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True))
        return self.processes[-1]

    def committed(self) -> int:
        """The number of micro-batches."""
        folder = self.root / "checkpoint" / "commits"
        return sum(file.name.isdecimal() for file in folder.iterdir()) if folder.exists() else 0

    def wait(self, process: "subprocess.Popen[bytes]", more: int) -> None:
        """Until this many further micro-batches are complete."""
        target = self.committed() + more
        wait_until(lambda: process.poll() is not None or self.committed() >= target, 180.0, f"{more} micro-batches")
        assert process.poll() is None, (self.root / "driver.log").read_text()[-3_000:]


def kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill the driver, its JVM and their Python workers."""
    for each in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
    process.wait()


def kill_workers(process: "subprocess.Popen[bytes]") -> int:
    """Kill the Python processes that run tasks, but not the one that plans. Returns their number."""
    killed = 0
    for one in psutil.Process(process.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # also one that has ended and still has an entry
            parent = one.parent()
            if parent is not None and "pyspark.daemon" in parent.cmdline():
                one.kill()
                killed += 1
    return killed


@pytest.fixture
def copy(keys: dict[str, str], shared_root: Callable[[], Path]) -> Iterator[Copy]:
    made = Copy(shared_root(), {**keys, "topics": "/killed.*/", "max_entries_per_batch": "9"})
    yield made
    for process in made.processes:
        if process.poll() is None:
            kill(process)


def test_a_stream_has_every_message_once_although_workers_and_driver_are_killed(
    client: pulsar.Client, copy: Copy, spark: SparkSession
) -> None:
    write(client, "killed-a", range(60), **ALONE)
    write(client, "killed-b", range(8), **KINDS["chunked"])
    process = copy.run()
    copy.wait(process, 3)
    for _ in range(3):
        wait_until(partial(kill_workers, process), 180.0, "workers to kill")
        copy.wait(process, 1)
    kill(process)
    write(client, "killed-a", range(60, 100), **KINDS["lz4"])
    write(client, "killed-c", range(30), **ALONE)
    process = copy.run()
    copy.wait(process, 3)
    kill(process)
    assert copy.run("once").wait(120) == 0, (copy.root / "driver.log").read_text()[-3_000:]
    found = spark.read.parquet(f"{copy.root}/rows")
    for name in ("killed-a", "killed-b", "killed-c"):
        expected = confirmed(as_pulsar(client, name))
        assert rows_seen(found.where(found.topic == f"persistent://{NAMESPACE}/{name}")) == expected
    for file in (copy.root / "checkpoint").rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes()
