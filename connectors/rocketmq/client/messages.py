"""Messages of queues: requests to pull, to send and to find offsets, and their responses.

The requests are plain values, so that a copier can have several in flight (`RocketMqConnection.submit`). A broker
handles requests of one connection on several threads: to keep the order of a queue, at most one request to send to it
may be in flight. Field names: PullMessageRequestHeader.java, SendMessageRequestHeaderV2.java.
"""

from typing import NamedTuple

from trueup.connectors.contract import LogId
from trueup.connectors.rocketmq.client.codes import STORED, RequestCode, ResponseCode
from trueup.connectors.rocketmq.client.connection import RocketMqRequest, RocketMqResponse
from trueup.connectors.rocketmq.protocol import flags
from trueup.connectors.rocketmq.protocol.block import Block, scan
from trueup.connectors.rocketmq.protocol.stored import StoredMessages, decode
from trueup.state.common.errors import Stop

READERS, WRITERS = "CID_RMQ_SYS_TRUEUP", "TRUEUP"
"""The consumer group of pulls: brokers accept groups with this prefix that were not created. The producer group."""
_SUSPEND, _SUBSCRIPTION = 2, 4
_LOOK_S = 5.0
"""Seconds between two looks of a broker at the pulls that it holds (PullRequestHoldService.java)."""
_TEMPLATE, _TEMPLATE_QUEUES = "no.template", 4
"""The topic whose settings a topic gets that the broker creates for a message (autoCreateTopicEnable). No topic can
have this name, so that a broker creates none (TopicConfigManager.java): it answers that the topic does not exist."""
_PULLED = frozenset({ResponseCode.OK, ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_AGAIN, ResponseCode.PULL_MOVED})


class PullResult(NamedTuple):
    """The response to a pull."""

    messages: StoredMessages | None
    """The messages; None if there are none, or if they are in the block."""
    next: int
    """The offset after the last message of the response, or the offset at which the broker tells a client to go on."""
    start: int
    """The offset of the oldest message of the queue."""
    end: int
    """The offset after the newest message of the queue."""
    moved: bool
    """Whether the requested offset is before the start or after the end of the queue."""
    block: Block | None = None
    """The messages as a block, in which case ``messages`` is None; see `pulled`."""


class SendResult(NamedTuple):
    """The place of a message or batch that was sent."""

    queue: int
    offset: int
    """The offset of the first message of a batch. The other messages follow it without gaps."""
    message_ids: tuple[str, ...]
    durable: bool
    """Whether the messages are stored as the settings of the broker demand. If not, the master has stored them, but
    they are not yet on its disk, or not on a slave, and it may not add them to their queue before they are."""


def pull(log: LogId, offset: int, most: int, wait_s: float = 0.0, group: str = READERS) -> RocketMqRequest:
    """Ask for up to ``most`` messages from this offset on; the broker holds the request for ``wait_s`` while there
    are none, and up to `_LOOK_S` longer. Brokers limit a response also by their settings maxTransfer*OnMessageIn*."""
    fields: dict[str, object] = {
        "consumerGroup": group,
        "topic": log.topic,
        "queueId": log.number,
        "queueOffset": offset,
        "maxMsgNums": most,
        "sysFlag": _SUBSCRIPTION | (_SUSPEND if wait_s else 0),
        "commitOffset": 0,
        "suspendTimeoutMillis": int(wait_s * 1000),
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
    }
    held_s = wait_s + _LOOK_S if wait_s else 0.0
    return RocketMqRequest(RequestCode.PULL, f"pull from {log} at {offset}", fields, accepted=_PULLED, wait_s=held_s)


def pulled(response: RocketMqResponse, together: bool = False) -> PullResult:
    """The messages of a response to `pull`. ``together``: whether messages that have the form of a block are returned
    as one. Raises `BadBytes`."""
    given = response.code == ResponseCode.OK and len(response.body)
    block = scan(response.body) if given and together else None
    messages = decode(response.body, response.where) if given and block is None else None
    following, start, end = (response.number(name) for name in ("nextBeginOffset", "minOffset", "maxOffset"))
    return PullResult(messages, following, start, end, response.code == ResponseCode.PULL_MOVED, block)


def send(
    log: LogId, body: bytes, born_ms: int, properties: bytes = b"", flag: int = 0, sys: int = 0, group: str = WRITERS
) -> RocketMqRequest:
    """Send one message, whose body must not be empty. Its properties can delay it or make it part of a transaction; the
    broker stores them in any order. Raises `Stop` for properties that are not UTF-8: only a batch can have them."""
    fields = _sending(log, born_ms, sys, group, batch=False)
    try:
        fields |= {"h": flag, "i": str(properties, "utf-8")}
    except UnicodeDecodeError as error:
        raise Stop("properties in UTF-8", str(error), "send the message in a batch") from error
    return RocketMqRequest(RequestCode.SEND, f"store a message in {log}", fields, body, STORED, changes=True)


def send_batch(
    log: LogId, body: bytes | memoryview, born_ms: int, sys: int = 0, group: str = WRITERS
) -> RocketMqRequest:
    """Send the messages of `batch.encode`. ``sys`` and ``born_ms`` apply to all of them. Their properties are stored as
    they are and have no effect: nothing is delayed."""
    fields = _sending(log, born_ms, sys, group, batch=True)
    return RocketMqRequest(RequestCode.SEND_BATCH, f"store messages in {log}", fields, body, STORED, changes=True)


def sent(response: RocketMqResponse) -> SendResult:
    """Where the messages of a response to `send` or `send_batch` are. Raises `BadBytes`."""
    ids = tuple(response.fields.get("msgId", "").split(","))
    return SendResult(response.number("queueId"), response.number("queueOffset"), ids, response.code == ResponseCode.OK)


def end_transaction(response: SendResult, group: str, unique: str, commit: bool = True) -> RocketMqRequest:
    """Commit or roll back a message that was sent with the property TRAN_MSG; ``unique``: its property UNIQ_KEY.

    The broker finds the prepared message by its offset in the commit log, the last 8 bytes of its id.
    """
    message_id = response.message_ids[0]
    fields: dict[str, object] = {
        "producerGroup": group,
        "tranStateTableOffset": response.offset,
        "commitLogOffset": int(message_id[-16:], 16),
        "commitOrRollback": flags.COMMITTED if commit else flags.TRANSACTION,
        "fromTransactionCheck": False,
        "msgId": message_id,
        "transactionId": unique,
    }
    return RocketMqRequest(RequestCode.END_TRANSACTION, f"end transaction {unique}", fields, changes=True)


def first_offset(log: LogId) -> RocketMqRequest:
    """Ask for the offset of the oldest message; see `offset_of`."""
    return RocketMqRequest(RequestCode.MIN_OFFSET, f"find the start of {log}", _queue(log))


def end_offset(log: LogId) -> RocketMqRequest:
    """Ask for the offset after the newest message. It lags behind acknowledgements, usually by 1 ms.

    It is 0 for a topic or queue that the broker does not have.
    """
    return RocketMqRequest(RequestCode.MAX_OFFSET, f"find the end of {log}", _queue(log))


def offset_at(log: LogId, stored_ms: int) -> RocketMqRequest:
    """Ask for the offset of the first message stored at or after this time, or the end."""
    fields = {**_queue(log), "timestamp": stored_ms, "boundaryType": "LOWER"}
    return RocketMqRequest(RequestCode.SEARCH_OFFSET, f"find the messages of {log} by time", fields)


def offset_of(response: RocketMqResponse) -> int:
    """The offset in a response. Raises `BadBytes`."""
    return response.number("offset")


def _queue(log: LogId) -> dict[str, object]:
    return {"topic": log.topic, "queueId": log.number}


def _sending(log: LogId, born_ms: int, sys: int, group: str, batch: bool) -> dict[str, object]:
    """Fields of both kinds: group, topic, template and its queues, queue, system flag, time of birth, flag, properties,
    deliveries, unit mode, batch, broker."""
    return {
        "a": group,
        "b": log.topic,
        "c": _TEMPLATE,
        "d": _TEMPLATE_QUEUES,
        "e": log.number,
        "f": sys & flags.KEPT,
        "g": born_ms,
        "h": 0,
        "i": "",
        "j": 0,
        "k": False,
        "m": batch,
        "n": log.place,
    }
