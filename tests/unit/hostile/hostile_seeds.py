"""Valid bodies of every format, as seeds for the mutations of `test_hostile_bytes`."""

import json
import struct
from typing import Any

import cramjam

from tests.offloaded import offloaded
from trueup.connectors.bookkeeper.metadata import metadata
from trueup.connectors.bookkeeper.metadata.metadata import Where
from trueup.connectors.kafka.client.fetch_produce import text
from trueup.connectors.pulsar import compressed, messages
from trueup.state.bookkeeper.observations import LedgerRecord
from trueup.streams.journal import codec

WHERE = Where(59, "/ledgers/00/0000/L0059", 1234, 2, 1_700_000_000_000, 9)
RECORD: LedgerRecord = {
    "ledger": 59, "mzxid": 1234, "version": 2, "ctime_ms": 7, "seen_ms": 9, "state": 3, "ensemble": 2, "quorum": 2,
    "ack_quorum": 2, "last_entry": 99, "length": 4096, "custom": {"application": b"pulsar"}, "error": "",
    "fragments": [{"first_entry": 0, "bookies": ["a:1", "b:1"]}, {"first_entry": 40, "bookies": ["a:1", "c:1"]}],
}  # fmt: skip
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
    b"\x00\x00\x00\x01\x00\x00\x00\x00\x00" + struct.pack("!i", 2) + b"/a"
    + b"\x00\x00\x00\x05\x00\x00\x00\x00\x00" + STAT + b"\xff\xff\xff\xff\x00" + struct.pack("!ii", -101, -101) + END
]  # fmt: skip


def _frame(xid: int, body: bytes) -> bytes:
    head = struct.pack("!iqi", xid, 77, 0)
    return struct.pack("!i", len(head) + len(body)) + head + body


STREAM = b"".join((
    _frame(-2, b""), *[_frame(-1, struct.pack("!iii", 3, 3, 2) + b"/a")] * 3,
    _frame(1, struct.pack("!ii", 1, 1) + b"a"),
    _frame(-1, struct.pack("!iii", 1, 3, 2) + b"/b"), _frame(-2, b""),
))  # fmt: skip
"""Pings, watch events, and the response with the names of a znode's children."""
PRODUCE_ANSWER = b"".join((
    struct.pack(">i", 1), text("orders"), struct.pack(">i", 2), struct.pack(">ihqqq", 0, 0, 5, -1, 0),
    struct.pack(">ihqqq", 1, 3, -1, -1, 0), struct.pack(">i", 0),
))  # fmt: skip


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
