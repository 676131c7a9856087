"""Valid bodies of every format, as seeds for the mutations of `test_hostile_bytes`."""

import json
import struct
from typing import Any

import cramjam
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from tests.offloaded import offloaded
from tests.unit.pulsar.pulsar_entries import Part, batched, encoded
from trueup.connectors.bookkeeper.metadata import metadata
from trueup.connectors.bookkeeper.metadata.metadata import ZnodeSource
from trueup.connectors.kafka.client.fetch_produce import text
from trueup.connectors.pulsar import compressed, messages, schemas
from trueup.connectors.pulsar.topics import topic_of
from trueup.state.bookkeeper.observations import LedgerRecord
from trueup.streams.journal import codec
from trueup.streams.topic_reader.spark.planner import EntryRange
from trueup.streams.topic_reader.spark.source import COLUMNS as SPARK_COLUMNS
from trueup.streams.topic_reader.spark.source import arrow_schema
from trueup.streams.topic_reader.spark.values import ValueSchema, spark_type

WHERE = ZnodeSource(59, "/ledgers/00/0000/L0059", 1234, 2, 1_700_000_000_000, 9)
RECORD: LedgerRecord = {
    "ledger": 59,
    "mzxid": 1234,
    "version": 2,
    "ctime_ms": 7,
    "seen_ms": 9,
    "state": 3,
    "ensemble": 2,
    "quorum": 2,
    "ack_quorum": 2,
    "last_entry": 99,
    "length": 4096,
    "custom": {"application": b"pulsar"},
    "error": "",
    "fragments": [{"first_entry": 0, "bookies": ["a:1", "b:1"]}, {"first_entry": 40, "bookies": ["a:1", "c:1"]}],
}
METADATA = [metadata.encode(RECORD, version, b"secret") for version in (1, 2, 3)]
ROUTE = (
    b'{"brokerDatas":[{"brokerName":"b","brokerAddrs":{0:"h:1"}}],'
    b'"queueDatas":[{"brokerName":"b","readQueueNums":4,"writeQueueNums":4,"perm":6}]}'
)
TOPIC = (
    b'{"topicConfigTable":{"t":{"readQueueNums":4,"writeQueueNums":4,"perm":6,"order":false,"topicSysFlag":0,'
    b'"attributes":{"message.type":"FIFO"}}}}'
)
PULLED = {"code": 0, "opaque": 1, "flag": 1, "extFields": {"nextBeginOffset": "1", "minOffset": "0", "maxOffset": "1"}}
XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
XERIAL += b"".join(
    struct.pack(">i", len(block)) + block for block in [bytes(cramjam.snappy.compress_raw(b"abc" * 100))] * 2
)
STAT = struct.pack("!qqqqiiiqiiq", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
END = b"\xff\xff\xff\xff\x01\xff\xff\xff\xff"
READ_ANSWERS = [
    jute + STAT + END
    for jute in (struct.pack("!i", 3) + b"xyz", b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" + struct.pack("!i", 3) + b"xyz")
]
READ_ANSWERS.append(b"\xff\xff\xff\xff\x00" + struct.pack("!ii", -101, -101) + END)
WRITE_ANSWERS = [
    b"\x00\x00\x00\x01\x00\x00\x00\x00\x00"
    + struct.pack("!i", 2)
    + b"/a"
    + b"\x00\x00\x00\x05\x00\x00\x00\x00\x00"
    + STAT
    + b"\xff\xff\xff\xff\x00"
    + struct.pack("!ii", -101, -101)
    + END
]


def _frame(xid: int, body: bytes) -> bytes:
    head = struct.pack("!iqi", xid, 77, 0)
    return struct.pack("!i", len(head) + len(body)) + head + body


STREAM = b"".join(
    (
        _frame(-2, b""),
        *[_frame(-1, struct.pack("!iii", 3, 3, 2) + b"/a")] * 3,
        _frame(1, struct.pack("!ii", 1, 1) + b"a"),
        _frame(-1, struct.pack("!iii", 1, 3, 2) + b"/b"),
        _frame(-2, b""),
    )
)
"""Pings, watch events, and the response with the names of a znode's children."""
PRODUCE_ANSWER = b"".join(
    (
        struct.pack(">i", 1),
        text("orders"),
        struct.pack(">i", 2),
        struct.pack(">ihqqq", 0, 0, 5, -1, 0),
        struct.pack(">ihqqq", 1, 3, -1, -1, 0),
        struct.pack(">i", 0),
    )
)


def responses(kind: Any) -> list[bytes]:
    """Bookie responses of protocol version 3."""
    answer = kind(status=0)
    answer.header.version, answer.header.operation, answer.header.txnId = 3, 1, 7
    answer.read.status, answer.read.ledgerId, answer.read.entryId, answer.read.body = 0, 7, 3, b"stored"
    return [answer.SerializeToString()]


def fetch_answer(batch: bytes) -> bytes:
    """A fetch response with one partition, one aborted transaction, and this batch."""
    partition = struct.pack(">ihqqqi", 0, 0, 9, 9, 0, 1) + struct.pack(">qq", 9, 2)
    records = struct.pack(">i", len(batch)) + batch
    head = struct.pack(">ihi", 0, 0, 0) + struct.pack(">i", 1) + text("orders") + struct.pack(">i", 1)
    return head + partition + records


def names(*found: bytes) -> bytes:
    """A jute vector of strings."""
    return struct.pack("!i", len(found)) + b"".join(struct.pack("!i", len(name)) + name for name in found)


def listings(*found: bytes) -> bytes:
    """A multi response: one listing with these names, one of a missing znode."""
    gone = b"\xff\xff\xff\xff\x00" + struct.pack("!ii", -101, -101)
    return b"\x00\x00\x00\x08\x00\x00\x00\x00\x00" + names(*found) + gone + END


def _pulsar() -> list[bytes]:
    ledger = messages.ManagedLedger()
    info = ledger.ledgerInfo.add(ledgerId=7, entries=3, size=9, timestamp=1)
    info.offloadContext.complete, info.offloadContext.uidMsb, info.offloadContext.uidLsb = True, 1, 2
    cursor = messages.Cursor(cursorsLedgerId=8, markDeleteLedgerId=7, markDeleteEntryId=1)
    cursor.properties.add(name=b"CompactedTopicLedger", value=9)
    cursor.cursorProperties.add(name=b"#pulsar.internal.delayed.bucket_1_2", value=b"10")
    plain: list[bytes] = [message.SerializeToString() for message in (ledger, cursor)]
    return [*plain, *(compressed.closed(plain[0], number) for number in range(5)), b"ledgerInfo {\n  ledgerId: 7\n}\n"]


PULSAR = _pulsar()
INDEX = [offloaded([b"abc", b"de"], 400).index]


def avro(topic: str) -> list[bytes]:
    """A record of this topic with no empty array or map."""
    return [codec.encode(topic, _example(json.loads(codec.schema_text(topic))))]


def _example(schema: Any) -> Any:
    if isinstance(schema, list):
        return _example(schema[-1])
    if isinstance(schema, str):
        return {"string": "abc", "bytes": b"abc", "boolean": True, "double": 0.5}.get(schema, 2)
    kind = schema["type"]
    if kind == "record":
        return {field["name"]: _example(field["type"]) for field in schema["fields"]}
    if kind == "array":
        return [_example(schema["items"])] * 2
    return {"k": _example(schema["values"])} if kind == "map" else _example(kind)


def _entries() -> list[bytes]:
    parts: list[Part] = [
        (b"a" * 30, {"partition_key": b"k", "properties": [(b"n", b"v")]}),
        (b"", {"null_value": True}),
    ]
    chunk = {"num_chunks_from_msg": 2, "chunk_id": 1, "total_chunk_msg_size": 6, "uuid": b"u"}
    return [
        encoded(b"hello", broker={"index": 5, "broker_timestamp": 9}, partition_key=b"a2V5"),
        *(batched(parts * 3, codec=codec, checksum=False) for codec in range(5)),
        encoded(b"abc", checksum=False, **chunk),
        encoded(b"abc", checksum=False, encryption_keys=[b"key"]),
    ]


PULSAR_ENTRIES = _entries()
RANGE = EntryRange(topic_of("t/ns/a"), 7, 3, 4)
COLUMNS = arrow_schema(StructType([StructField(name, kind) for name, kind in SPARK_COLUMNS.items()]), SPARK_COLUMNS)
AVRO = (
    b'{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "long"]}, {"name": "b", "type": '
    b'{"type": "array", "items": "string"}}, {"name": "c", "type": {"type": "int", "logicalType": "date"}}]}'
)
VALUES = [b"\x02\x06\x02\x04hi\x00\x08", b'{"a": 3, "b": ["hi"], "c": 4}', b"\x00\x00\x00\x07"]


def _schemas() -> list[bytes]:
    locator = messages.Schema()
    locator.info.version, locator.info.hash = 1, b"h"
    locator.info.position.ledgerId, locator.info.position.entryId = 9, 0
    info = schemas.SchemaInfo(type=5, schema=AVRO, deleted=False).SerializeToString()
    return [locator.SerializeToString(), schemas.SchemaEntry(schema_data=info).SerializeToString()]


SCHEMAS = _schemas()
COLUMN_OF = {
    kind: to_arrow_schema(StructType([StructField("value", spark_type(ValueSchema(kind, AVRO)))]), timezone="UTC")
    .field("value")
    .type
    for kind in (schemas.SchemaType.AVRO, schemas.SchemaType.JSON, schemas.SchemaType.STRING, schemas.SchemaType.INT32)
}
