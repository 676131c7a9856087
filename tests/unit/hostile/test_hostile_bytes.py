"""Mutated bytes through every decoder of external data: a value or `BadBytes`, within time and memory limits."""

import logging
import socket
import struct
import time
import tracemalloc
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Event
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from kazoo.exceptions import EXCEPTIONS, AuthFailedError, ConnectionDropped, KazooException

from tests.fuzz import mutated
from tests.unit.hostile import hostile_seeds as seeds
from tests.unit.rocketmq.peers import frame
from tests.unit.rocketmq.stored_messages import Message
from trueup.connectors.bookkeeper.bookie.bulk_reads import ReadConnection
from trueup.connectors.bookkeeper.bookie.connection import BookieConnection
from trueup.connectors.bookkeeper.bookie.entries import Digest, DigestType, head_of
from trueup.connectors.bookkeeper.bookie.frames import BookieFrames
from trueup.connectors.bookkeeper.messages import Response
from trueup.connectors.bookkeeper.metadata import bulk, mark_codec, metadata
from trueup.connectors.contract import Endpoint
from trueup.connectors.kafka.client import fetch_produce
from trueup.connectors.kafka.client.connection import BrokerConnection as KafkaConnection
from trueup.connectors.kafka.protocol import compression
from trueup.connectors.kafka.protocol import record_batch as batches
from trueup.connectors.kafka.protocol.aborted import Aborted
from trueup.connectors.kafka.protocol.reencode import dense
from trueup.connectors.kafka.replication.records.decode import decoded
from trueup.connectors.pulsar import compressed, offload_index, schemas
from trueup.connectors.pulsar import metadata as pulsar
from trueup.connectors.pulsar.protocol.chunks import Chunks
from trueup.connectors.pulsar.protocol.entry import entry_of, layout_of
from trueup.connectors.pulsar.protocol.lockstep import UnusualError
from trueup.connectors.pulsar.protocol.message import messages_of
from trueup.connectors.pulsar.protocol.rows import EntryBytes, rows_of
from trueup.connectors.pulsar.schemas import SchemaType
from trueup.connectors.rocketmq.client import group_offsets, rights, topics
from trueup.connectors.rocketmq.client import messages as rocketmq
from trueup.connectors.rocketmq.client.cluster import RocketMqClient
from trueup.connectors.rocketmq.client.codes import RequestCode
from trueup.connectors.rocketmq.client.connection import (
    ConnectionOptions,
    RocketMqConnection,
    RocketMqRequest,
    RocketMqResponse,
)
from trueup.connectors.rocketmq.protocol import compression as bodies
from trueup.connectors.rocketmq.protocol import properties, stored
from trueup.connectors.zookeeper import requests
from trueup.connectors.zookeeper.connection import ZooKeeperConnection
from trueup.state.common.errors import BadBytes, Retry, Stop, TrueupError
from trueup.state.read_priority.tiers import Tier
from trueup.streams.bookkeeper import codec as rows
from trueup.streams.catalog import STREAMS
from trueup.streams.journal import codec
from trueup.streams.topic_reader.spark.columns import OutputColumns
from trueup.streams.topic_reader.spark.values import BYTES, ValueRow, Values, ValueSchema

LIMIT_BYTES, LIMIT_S = 96 << 20, 2.0
BODY = b"\x10\x00\x00\x00\x02k\x02v\x00" * 40


def batch_of(codec_number: int, body: bytes = BODY, records: int = 40, attributes: int = 0) -> bytes:
    header = batches.BatchHeader(5, 0, 1, 2, 0, codec_number | attributes, records - 1, 1, 1, 9, 0, 0, records)
    return bytes(batches.assemble(header, compression.closed(codec_number, body)))


def opened(data: bytes) -> None:
    for header, batch in batches.walk(memoryview(bytearray(data))):
        if header.magic == 2:
            batches.sound(header, batch)
            dense(header, batch, "here")
            body = compression.opened(header.attributes & batches.CODEC, batch[batches.HEADER_BYTES :], "here")
            decoded([(header, body)], "here", lambda _: b"")


def control(data: bytes) -> None:
    aborted = Aborted([(9, 0)])
    for header, batch in batches.walk(memoryview(data)):
        if header.magic == 2:
            aborted.end(header, batch)


def decompressed(data: bytes) -> None:
    for number in range(5):
        for most in (0, 100):
            try:
                compression.opened(number, memoryview(data), "here", most)
            except BadBytes:
                continue


def streamed(data: bytes) -> None:
    left = memoryview(data)

    def receive(room: memoryview) -> int:
        nonlocal left
        got = min(len(room), len(left))
        room[:got], left = left[:got], left[got:]
        return got

    frames = BookieFrames(receive, "b:1")
    while frames.next() is not None:
        pass


def responded(data: bytes) -> None:
    class Silent(BookieConnection):
        def __init__(self) -> None:
            self.name = "b:1"

        def receive(self) -> memoryview:
            return memoryview(data)

    answer = Silent().response()
    assert answer.header.txnId is not None


def cut(data: bytes) -> None:
    reads = ReadConnection("b:1", ("127.0.0.1", 1), 1.0)
    reads._ledger = 7
    assert len(list(reads._cut(memoryview(data), 0, 500))) <= 500


def looked_up(data: bytes) -> None:
    for found in (requests.GetData("/a").deserialize(data, 0), requests.MultiRead(b"/a", [b"1"]).deserialize(data, 0)):
        list(found.rows())
        [found.stat(row) for row in range(len(found)) if found.size[row] >= 0]


def written(data: bytes) -> None:
    requests.Multi([]).deserialize(data, 0)


def listed(data: bytes) -> None:
    requests.GetChildren("/a").deserialize(data, 0)


def listings(data: bytes) -> None:
    requests.Listings(["/a"]).deserialize(data, 0)


def in_bulk(data: bytes) -> None:
    raw = data + bytes(requests.STAT_BYTES)
    found = requests.Znodes(raw, np.array([0]), np.array([len(data)]), 7)
    list(bulk.decode(np.array([59]), [found], str, 9).records())


def digested(data: bytes) -> None:
    for kind in DigestType:
        digest = Digest(kind, b"secret")
        for check in (lambda d=digest: d.check(7, 3, memoryview(data)), lambda d=digest: d.note(7, memoryview(data))):
            try:
                check()
            except BadBytes:
                continue


def pointed(data: bytes) -> None:
    for decode in (pulsar.managed_ledger, pulsar.cursor, pulsar.schema, compressed.opened):
        try:
            decode(data, "here")
        except BadBytes:
            continue


class Line(ZooKeeperConnection):
    """A connection that receives these bytes with one request in flight."""

    def __init__(self, data: bytes) -> None:
        self._left, self.logger, self.ping_outstanding = data, logging.getLogger("kazoo.test"), Event()
        self.client: Any = SimpleNamespace(
            sink=lambda _: None,
            _data_watchers={},
            _child_watchers={},
            last_zxid=0,
            _stopped=Event(),
            _session_callback=lambda _: None,
            _pending=deque([(requests.GetChildren("/a"), Future(), 1)]),
        )

    def _receive(self, most: int, timeout: float) -> bytes:
        assert most <= 1 << 20
        if not self._left:
            raise ConnectionDropped("the end")
        found, self._left = self._left[:most], self._left[most:]
        return found


class Future:
    """The part of kazoo's future that a response needs."""

    def set(self, _answer: object) -> None:
        pass

    def set_exception(self, error: Exception) -> None:
        assert isinstance(error, BadBytes | KazooException)


def over_a_line(data: bytes) -> None:
    line = Line(data)
    while True:
        line._read_socket(1.0)


def one_answer(data: bytes) -> None:
    here, there = socket.socketpair()
    with here, there:
        there.sendall(data[:60_000])
        there.close()
        here.settimeout(1.0)
        connection = KafkaConnection(here, "b:1", "us")
        connection._expected = 0
        connection.receive()


def kept(data: bytes) -> None:
    found = stored.decode(memoryview(data), "here")
    [properties.decoded(raw) for raw in found.properties]
    [(found.message_id(row), found.topics()) for row in range(len(found))]


def inflated(data: bytes) -> None:
    for kind in range(4):
        try:
            bodies.opened(memoryview(data), 1 | kind << 8, "here")
        except BadBytes:
            continue


def pull_over_a_line(data: bytes) -> None:
    class Wired(RocketMqConnection):
        """A connection to these bytes."""

        def __init__(self, end: socket.socket) -> None:
            with patch("trueup.connectors.rocketmq.client.connection._open", lambda *_: end):
                super().__init__("b:1", ConnectionOptions(timeout_s=1.0))

    here, there = socket.socketpair()
    with here, there:
        there.sendall(data[:60_000])
        there.shutdown(socket.SHUT_WR)
        with Wired(here) as connection:
            rocketmq.pulled(connection.ask(RocketMqRequest(RequestCode.PULL, "pull", {})))


class FixedResponses(RocketMqClient):
    """A client whose servers answer with this body."""

    def __init__(self, data: bytes) -> None:
        super().__init__(Endpoint("east", "n:1", 0))
        self._data = data

    def _ask(self, address: str, request: RocketMqRequest) -> RocketMqResponse:
        return RocketMqResponse(0, {}, memoryview(self._data), "a response")


def server_responses(data: bytes) -> None:
    client = FixedResponses(data)
    client._masters["b"] = "b:1"
    for ask in (
        lambda: client.route("t"),
        client.topics,
        client.masters,
        lambda: topics.topics(client, "b"),
        lambda: topics.topic(client, "b", "t"),
        lambda: topics.groups(client, "b"),
        lambda: rights.rights(client, "b"),
        lambda: topics.runtime(client, "b"),
        lambda: group_offsets.members(client, "g", ["b"]),
        lambda: topics.settings(client, "b"),
        lambda: rights.users(client, "b"),
    ):
        client._masters["b"] = "b:1"
        try:
            ask()
        except BadBytes:
            continue


def pulsar_entry(data: bytes) -> None:
    """An entry to columns; twice, as chunks of the same message."""
    chunks = Chunks("here")
    for entry in (3, 4):
        some = [chunks.add(one) for one in messages_of(entry_of(memoryview(data), "here"), 7, entry, "here")]
        found = [one for one in some if one is not None]
        list(
            OutputColumns(seeds.COLUMNS, seeds.RANGE, Values(BYTES, None, strict=True)).batches([(found, Tier.TIERED)])
        )


def pulsar_rows(data: bytes) -> None:
    """An entry to columns, parsed together with another one: refused, or the same columns as on its own."""
    entries = [data, data]
    held = EntryBytes((3, 4), entries, [layout_of(one, "here") for one in entries])
    try:
        found = rows_of(held)
    except UnusualError:
        return
    columns = OutputColumns(seeds.COLUMNS, seeds.RANGE, Values(BYTES, None, strict=True))
    alone = [messages_of(entry_of(memoryview(data), "here"), 7, entry, "here") for entry in held.entries]
    expected = columns.batches((one, Tier.TIERED) for one in alone)
    assert list(columns.batches([(found, Tier.TIERED)])) == list(expected)


def pulsar_schema(data: bytes) -> None:
    for decode in (schemas.schema_places, lambda data, where: schemas.schema_of(data, 0, where)):
        try:
            decode(data, "here")
        except BadBytes:
            continue


def pulsar_value(data: bytes) -> None:
    for kind in (SchemaType.AVRO, SchemaType.JSON, SchemaType.STRING, SchemaType.INT32):
        schema = ValueSchema(kind, seeds.AVRO)
        row = ValueRow(data, False, None, "here")
        Values(schema, None, strict=False).column([row], seeds.COLUMN_OF[kind])


DECODERS: dict[str, tuple[Callable[[bytes], Any], Sequence[bytes]]] = {
    "frames": (streamed, [struct.pack(">i", 5) + b"hello", b"\x0f\xff\xff\xff"]),
    "response": (responded, seeds.responses(Response)),
    "reads": (cut, [struct.pack(">IIqqq", 2 << 24 | 7 << 16, 0, 7, 0, 1) + (struct.pack(">i", 3) + b"abc") * 2]),
    "entries": (digested, [Digest(kind, b"secret").seal(head_of(7, 3, 2, 9), b"payload") for kind in DigestType]),
    "metadata": (lambda data: metadata.decode(data, seeds.WHERE), seeds.METADATA),
    "protection": (lambda data: metadata.protection(data, "here"), seeds.METADATA),
    "bulk": (in_bulk, seeds.METADATA),
    "marks": (
        lambda data: (mark_codec.decode(data), mark_codec.holder(data)),
        [mark_codec.encode(("a:1",), 5), mark_codec.vote("b:1")],
    ),
    "fetched": (lambda data: fetch_produce.fetched(memoryview(data)), [seeds.fetch_answer(batch_of(0))]),
    "produced": (lambda data: fetch_produce.produced(memoryview(data)), [seeds.PRODUCE_ANSWER]),
    "batches": (opened, [batch_of(number) for number in range(5)] + [batch_of(3, attributes=batches.APPEND_TIME)]),
    "control": (
        control,
        [batch_of(0, b"\x1a\x00\x00\x00\x08\x00\x00\x00\x00\x0c\x00\x00\x00\x00\x00\x00\x00", 1, 0x30)],
    ),
    "compression": (decompressed, [compression.closed(number, BODY) for number in range(1, 5)] + [seeds.XERIAL]),
    "zookeeper": (over_a_line, [seeds.STREAM]),
    "kafka": (one_answer, [struct.pack(">ii", 9, 1) + b"hello", struct.pack(">i", 1 << 29) + b"hello"]),
    "looked": (looked_up, seeds.READ_ANSWERS),
    "written": (written, seeds.WRITE_ANSWERS),
    "listed": (listed, [seeds.names(b"a", b"bc"), seeds.names(b"ab", b"cd")]),
    "listings": (listings, [seeds.listings(b"a", b"bc")]),
    "rocketmq stored": (kept, [Message().encoded() * 3, Message(topic=b"t" * 200, sys=0x30).encoded()]),
    "rocketmq bodies": (inflated, [bodies.closed(BODY, kind)[0] for kind in (1, 2, 3)]),
    "rocketmq": (
        pull_over_a_line,
        [frame(seeds.PULLED, Message().encoded() * 2), frame(seeds.PULLED), struct.pack(">i", 1 << 26) + b"hello"],
    ),
    "rocketmq responses": (server_responses, [seeds.ROUTE, seeds.TOPIC]),
    "pulsar": (pointed, seeds.PULSAR),
    "pulsar entries": (pulsar_entry, seeds.PULSAR_ENTRIES),
    "pulsar entries together": (pulsar_rows, seeds.PULSAR_ENTRIES),
    "pulsar schemas": (pulsar_schema, seeds.SCHEMAS),
    "pulsar values": (pulsar_value, seeds.VALUES),
    "index": (lambda data: offload_index.index_of(data, "here"), seeds.INDEX),
    **{
        f"avro {topic}": (lambda data, topic=topic: codec.decode(topic, data), seeds.avro(topic))
        for topic in ("config", *(each.name for stream in STREAMS for each in stream.topics), "history")
    },
    "ledger rows": (lambda data: rows.ledger_rows([data, *seeds.avro("ledgers")]), seeds.avro("ledgers")),
}


@pytest.mark.parametrize("name", DECODERS)
def test_mutated_bytes_are_a_value_or_bad_bytes(name: str) -> None:
    decode, bodies = DECODERS[name]
    answered = 0
    for body in bodies:  # imports the modules under test
        with suppress(BadBytes, *_OURS.get(name, ())):
            decode(body)
    tracemalloc.start()
    try:
        for body in mutated(bodies, 80, name):
            tracemalloc.reset_peak()
            began = time.process_time()
            try:
                decode(body)
            except (BadBytes, *_OURS.get(name, ())):
                answered += 1
            assert time.process_time() - began < LIMIT_S, body.hex()
            assert tracemalloc.get_traced_memory()[1] < LIMIT_BYTES, body.hex()
    finally:
        tracemalloc.stop()
    assert answered or name in _SILENT


_KAZOO = tuple(EXCEPTIONS.values())
_OURS: dict[str, tuple[type[Exception], ...]] = {
    "index": (Stop,),
    "reads": (TrueupError,),
    "looked": _KAZOO,
    "listings": _KAZOO,
    "zookeeper": (ConnectionDropped, AuthFailedError),
    "kafka": (Retry,),
    "rocketmq": (Retry, Stop),
    "fetched": (Retry, Stop),
}
"""Further errors that a decoder may raise: unsupported formats, and errors that a response contains."""
_SILENT = (
    "pulsar schemas",
    "pulsar values",
    "marks",
    "entries",
    "compression",
    "pulsar",
    "bulk",
    "rocketmq bodies",
    "rocketmq responses",
)
"""Decoders that return a value for invalid input, or whose errors are caught above."""
