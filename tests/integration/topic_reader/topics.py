"""Topics that Pulsar's client writes, and what Pulsar's own reader gives out of them."""

import atexit
import base64
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pulsar
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from pyspark.sql import DataFrame

from trueup.sandbox.pulsar import SandboxPulsar
from trueup.state.read_priority.tiers import ReadPriority
from trueup.streams.topic_reader.reader import ReadOptions, ReadReport, TopicMessage

BOOKIES_FIRST, TIERED_FIRST = ReadOptions(), ReadOptions(ReadPriority.TIERED_STORAGE_FIRST)
Steps = Iterator[TopicMessage]
Start = Callable[..., AbstractContextManager[tuple[Steps, ReadReport]]]
"""Starts a read of a topic: ``start(topic, options)``."""
Load = Callable[..., DataFrame]
"""Reads topics as a data frame: ``load(topics, schema, **options)``."""

NAMESPACE, COUNT, PER_LEDGER = "public/default", 130, 20
KEEPS_MS = 86_400_000
CHUNK = 100_000
SECRET = "planted-in-the-environment"
BATCHED = {"batching_enabled": True, "batching_max_publish_delay_ms": 100, "batching_max_messages": 7}
ALONE = {"batching_enabled": False}
KINDS: dict[str, dict[str, Any]] = {
    "plain": ALONE,
    "lz4": {**BATCHED, "compression_type": pulsar.CompressionType.LZ4},
    "zlib": {**BATCHED, "compression_type": pulsar.CompressionType.ZLib},
    "zstd": {**BATCHED, "compression_type": pulsar.CompressionType.ZSTD},
    "snappy": {**ALONE, "compression_type": pulsar.CompressionType.SNAPPY},
    "encrypted": {**ALONE, "encryption_key": "key"},
    "chunked": {**ALONE, "chunking_enabled": True, "compression_type": pulsar.CompressionType.LZ4},
}


class Seen(NamedTuple):
    """A message as a reader gives it."""

    id: tuple[int, int, int]
    key: str
    ordering_key: str
    properties: dict[str, str]
    value: bytes
    publish_ms: int
    event_ms: int


class Read(NamedTuple):
    """The result of `trueup read -o json`."""

    code: int
    messages: list[Seen]
    tiers: list[str]
    errors: str


def seen(row: dict[str, Any]) -> Seen:
    value = base64.b64decode(row["value_base64"]) if "value_base64" in row else row["value"].encode()
    where = row["ledger"], row["entry"], row["batch_index"]
    return Seen(
        where,
        row["key"] or "",
        row["ordering_key"] or "",
        dict(row["properties"]),
        value,
        row["publish_ms"],
        row["event_ms"],
    )


@cache
def key_reader() -> pulsar.CryptoKeyReader:
    """A new key of this process."""
    key = rsa.generate_private_key(65_537, 2_048)
    root = Path(tempfile.mkdtemp(prefix="trueup-key-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    form, spki = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (root / "public.pem").write_bytes(key.public_key().public_bytes(form, spki))
    (root / "private.pem").write_bytes(key.private_bytes(form, *plain))
    return pulsar.CryptoKeyReader(str(root / "public.pem"), str(root / "private.pem"))


def full(topic: str) -> str:
    """The full name of a topic, of `NAMESPACE` if it names none."""
    return f"persistent://{topic if '/' in topic else f'{NAMESPACE}/{topic}'}"


def write(client: pulsar.Client, topic: str, numbers: range, **options: Any) -> None:
    if "encryption_key" in options:
        options["crypto_key_reader"] = key_reader()
    producer = client.create_producer(full(topic), block_if_queue_full=True, **options)
    size = 3 * CHUNK if options.get("chunking_enabled") else 200
    for number in numbers:
        content = b"%d:" % number + (number.to_bytes(4, "big") * size)[:size]
        more: dict[str, Any] = {"partition_key": f"key {number}"} if number % 3 else {}
        if number % 5 == 0:
            more |= {"ordering_key": f"order {number}", "event_timestamp": 1_700_000_000_000 + number}
        if number == numbers[-1]:
            producer.flush()  # the last entry proves that all before it are confirmed
        producer.send_async(content, lambda *_: None, properties={"number": str(number), "umlaut": "ä"}, **more)
    producer.flush()
    producer.close()


def as_pulsar(client: pulsar.Client, topic: str) -> list[Seen]:
    """All messages of a topic as Pulsar's own reader gives them; encrypted ones as they are."""
    consume = pulsar.ConsumerCryptoFailureAction.CONSUME
    reader = client.create_reader(full(topic), pulsar.MessageId.earliest, crypto_failure_action=consume)
    found = []
    while reader.has_message_available():
        m = reader.read_next(180_000)
        i = m.message_id()
        where = i.ledger_id(), i.entry_id(), i.batch_index()
        found.append(
            Seen(
                where,
                m.partition_key(),
                m.ordering_key(),
                m.properties(),
                m.data(),
                m.publish_timestamp(),
                m.event_timestamp(),
            )
        )
    reader.close()
    return found


def rot(cluster: SandboxPulsar, number: int, content: bytes) -> None:
    """Change the first byte of some content on the disk of a bookie, which restarts: in its entry logs, and in its
    journal, from which a start repeats what was written last."""
    cluster.stop(f"bookie{number}", 30.0)
    files = [file for kind in ("*.log", "*.txn") for file in cluster.bookies[number].root.rglob(kind)]
    for file, held in [(file, file.read_bytes()) for file in files]:
        if content in held:
            file.write_bytes(held.replace(content, b"X" + content[1:]))
    cluster.start(f"bookie{number}")


def confirmed(messages: list[Seen]) -> list[Seen]:
    """Without the last entry of the open ledger: only the writer knows that it is confirmed until it writes again."""
    return messages[:-1]


def ids(found: Iterator[TopicMessage]) -> list[tuple[int, int, int]]:
    """The ids of messages, which are read."""
    return [(one.message.ledger, one.message.entry, one.message.batch_index) for one in found]


def last_ledger(messages: list[Seen]) -> int:
    return messages[-1].id[0]


def rows_seen(frame: DataFrame) -> list[Seen]:
    """The rows of a data frame, in the order of the topic."""
    return [
        Seen(
            (row.ledger, row.entry, row.batch_index),
            (row.key or b"").decode(),
            (row.ordering_key or b"").decode(),
            row.properties,
            bytes(row.value),
            ms(row.publish_time),
            ms(row.event_time),
        )
        for row in frame.orderBy("ledger", "entry", "batch_index").collect()
    ]


def ms(time: Any) -> int:
    return 0 if time is None else round(time.timestamp() * 1_000)
