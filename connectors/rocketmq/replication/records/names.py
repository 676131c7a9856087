"""Names of properties: those that RocketMQ itself uses (MessageConst.java), and those that links add.

A copy of a message has the properties of the message except those of `STORED_BY_BROKER`, and in addition a tag:

trueup-source                 the clusters passed, as the header of that name
ROCKETMQ_REPLICATOR_SOURCE    the name of the first of them: the cluster in which the message was born (RIP-45)
trueup-offset                 the header of that name and the digest of the tag (binding.py), together in base64
trueup-time                   time of birth in ms since 1970, if it differs from that of the batch

and, if it was copied from another system, trueup-record: parts of its record that no property can have (columns.py).
A tag counts only if its digest fits the message: otherwise an application passed it on.
"""

from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64

from trueup.connectors.replication.headers import MARK
from trueup.state.replication.provenance import HEADER, birth_in

KEYS, UNIQUE = b"KEYS", b"UNIQ_KEY"
LIGHT = b"INNER_MULTI_DISPATCH", b"INNER_MULTI_QUEUE_OFFSET"
"""The light queues (LMQ) in which a message also is, and its offsets there, if it has both (DispatchRequest.java,
containsLMQ). Brokers add only single messages to them (CommitLog.java), and copies are batches."""
VALUE, NEXT = b"\x01", b"\x02"
"""They follow the name and the value of each property (protocol/properties.py)."""
SOURCE, OFFSET = HEADER.encode(), MARK.encode()
BIRTH, TIME, RECORD = b"ROCKETMQ_REPLICATOR_SOURCE", b"trueup-time", b"trueup-record"
MARKED = OFFSET + VALUE
MARK_BYTES = 24
"""Bytes of the content of `OFFSET`: the header's 16, and the digest."""

NATIVE = "trueup-rocketmq"
"""Header of a message that is copied to another system: int32 flag, and the properties that no header can have."""
RAW, FLAGS = "trueup-rocketmq-raw", "trueup-rocketmq-flags"
"""First headers of a message between the reader and the writer: all properties; flag and system flag, if not 0."""

MERGED = b"REPLICATOR-BORN-SOURCE"
"""Clusters passed as the merged replicator writes them: cloud_cluster_region, each with a comma."""
CONNECT = b"connect-ext-"
"""The runtime of the merged replicator adds this prefix to names of properties."""
CONNECTED = CONNECT + SOURCE
OTHERS = (BIRTH, MERGED, CONNECTED, CONNECT + BIRTH, CONNECT + MERGED)
"""Clusters passed in messages that another replicator wrote. `BIRTH` beside `SOURCE` is a part of a tag of Trueup."""

STORED_BY_BROKER = frozenset(
    b"CLUSTER MSG_REGION TRACE_ON DELAY REAL_TOPIC REAL_QID TRAN_MSG PGROUP TRAN_PREPARED_QUEUE_OFFSET"
    b" TRANSACTION_CHECK_TIMES TIMER_DELAY_SEC TIMER_DELAY_MS TIMER_DELIVER_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS"
    b" TIMER_ROLL_TIMES TIMER_OUT_MS TIMER_DEL_UNIQKEY TIMER_DELAY_LEVEL INNER_NUM INNER_BASE INNER_MULTI_DISPATCH"
    b" INNER_MULTI_QUEUE_OFFSET __CRC32#".split()
)
"""They describe how and where a message was stored or delayed. A copy with them could be delayed again, be hidden as a
part of a transaction, or be refused."""
TAG = frozenset({SOURCE, OFFSET, BIRTH, TIME})
"""The tag of a copy. An onward copy has one of its own."""
FOREIGN = TAG | frozenset(OTHERS)
"""Properties that are counted if no link and no known replicator wrote the message."""

_WITH_MEANING = frozenset(
    b"RETRY_TOPIC MIN_OFFSET MAX_OFFSET BUYER_ID ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG"
    b" RECONSUME_TIME EXTEND_UNIQ_INFO MAX_RECONSUME_TIMES CONSUME_START_TIME DUP_INFO CHECK_IMMUNITY_TIME_IN_SECONDS"
    b" __transactionId__ INSTANCE_ID CORRELATION_ID REPLY_TO_CLIENT TTL ARRIVE_TIME PUSH_REPLY_TIME MSG_TYPE POP_CK"
    b" POP_CK_OFFSET 1ST_POP_TIME PROPERTY_FORWARD_QUEUE_ID REDIRECT TRACE_CONTEXT __BORNHOST BORN_TIMESTAMP"
    b" __STARTDELIVERTIME DLQ_ORIGIN_TOPIC DLQ_ORIGIN_MESSAGE_ID".split()
)
TRANSIENT = b"__RMQ.TRANSIENT."
"""Properties with this prefix exist only within a broker or a client."""
_LONGEST = 20
"""Characters of a number of 64 bits."""
RESERVED = STORED_BY_BROKER | TAG | _WITH_MEANING | {KEYS, RECORD, NATIVE.encode()}
"""No header of another system becomes a property with such a name, and no such property becomes a header. Those that
users may set have the same meaning in both: TAGS, __SHARDINGKEY, UNIQ_KEY, WAIT."""


def path_of(passed: bytes) -> bytes:
    """The properties of a copy for the clusters passed, which contain no separator."""
    return b"".join((SOURCE, VALUE, passed, NEXT, BIRTH, VALUE, birth_in(passed), NEXT))


def value_in(raw: bytes, name: bytes) -> bytes:
    """The value of the last property with this name in stored properties; empty if there is none."""
    sought = name + VALUE
    at = raw.rfind(sought)
    while at > 0 and raw[at - 1] != NEXT[0]:
        at = raw.rfind(sought, 0, at)
    return raw[at + len(sought) :].partition(NEXT)[0] if at >= 0 else b""


def time_in(text: bytes) -> int | None:
    """The time in a value of `TIME`; None if it is not a number of 64 bits, as links write it."""
    if len(text) > _LONGEST or not text.removeprefix(b"-").isdigit():
        return None
    return number if -(1 << 63) <= (number := int(text)) < 1 << 63 else None


def to_base64(raw: bytes) -> bytes:
    """The text of bytes in a property."""
    return b2a_base64(raw, newline=False)


def from_base64(text: bytes) -> bytes | None:
    """The bytes of such a text; None if it is another one."""
    try:
        return a2b_base64(text, strict_mode=True)
    except (Base64Error, ValueError):
        return None


def is_free(name: bytes) -> bool:
    """Whether a header can be a property with this name."""
    return bool(name) and name not in RESERVED and not name.startswith(TRANSIENT)
