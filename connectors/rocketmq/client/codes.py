"""Codes of requests and responses (RequestCode.java, ResponseCode.java), and the meaning of errors."""

import re
from collections.abc import Mapping
from enum import IntEnum

from trueup.state.common.errors import Retry, Stop, TrueupError, Unknown


class RequestCode(IntEnum):
    """What a request asks for."""

    PULL = 11
    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15
    UPDATE_TOPIC = 17
    ALL_TOPIC_CONFIGS = 21
    UPDATE_BROKER_CONFIG = 25
    BROKER_CONFIG = 26
    BROKER_RUNTIME = 28
    SEARCH_OFFSET = 29
    MAX_OFFSET = 30
    MIN_OFFSET = 31
    END_TRANSACTION = 37
    ALL_CONSUMER_OFFSETS = 43
    ROUTE = 105
    CLUSTER = 106
    UPDATE_GROUP = 200
    ALL_GROUPS = 201
    MEMBERS = 203
    TOPICS = 206
    DELETE_GROUP = 207
    DELETE_TOPIC_IN_BROKER = 215
    DELETE_TOPIC_IN_NAME_SERVER = 216
    SYSTEM_TOPICS = 304
    SEND = 310
    SEND_BATCH = 320
    TOPIC_CONFIG = 351
    CREATE_USER = 3001
    UPDATE_USER = 3002
    DELETE_USER = 3003
    USERS = 3005
    CREATE_RIGHTS = 3006
    UPDATE_RIGHTS = 3007
    DELETE_RIGHTS = 3008
    RIGHTS = 3010


class ResponseCode(IntEnum):
    """The outcome of a request."""

    OK = 0
    SYSTEM_ERROR = 1
    BUSY = 2
    UNSUPPORTED = 3
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    NO_PERMISSION = 16
    NO_TOPIC = 17
    PULL_NOT_FOUND = 19
    PULL_AGAIN = 20
    PULL_MOVED = 21
    NOT_FOUND = 22
    NO_GROUP = 26
    INVALID = 29
    NO_MEMBER = 206
    FLOW_CONTROL = 215
    GO_AWAY = 1500


STORED = frozenset(
    {
        ResponseCode.OK,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
)
"""Responses to a message that the master has stored; the last three: not yet on its disk, or not on a slave. Its queue
may not show the message then (`dispatch`)."""
_PASSING = (ResponseCode.BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.FLOW_CONTROL, ResponseCode.GO_AWAY)
_PASSING_REMARKS = ("busy", "in-sync replicas not enough", "getmessage return null", "nosuchelementexception")
"""In lower case, the system errors that pass: a busy page cache or commit log, and replicas that are away
(SendMessageProcessor.java; with DLedger the message may appear later); a store that stops or cannot be read now
(PullMessageProcessor.java); a broker that has just started and has no samples for figures yet
(StoreStatsService.java)."""
_UNSURE = "UNKNOWN_ERROR"
"""Brokers report a failed write as a system error (SendMessageProcessor.java)."""
_EXCEEDED = "size exceeded"
"""Brokers refuse a batch that is too long with an exception (MessageExtEncoder.java), which is a system error."""
_TODO: Mapping[int, str] = {
    ResponseCode.SYSTEM_ERROR: "check the broker's log; the request may be one that this version does not support",
    ResponseCode.UNSUPPORTED: "use RocketMQ 5.3 or later",
    ResponseCode.MESSAGE_ILLEGAL: "a message or its properties are too long, or it is refused by the topic's type",
    ResponseCode.NO_GROUP: "create the subscription group on this broker",
    ResponseCode.INVALID: "check the name of the topic, its number of queues, and whether it is a system topic",
}
_DENIED = (
    ("username cannot be null", "set access_key and secret_key: the cluster requires authentication"),
    ("signature failed", "correct the secret key"),
    ("is not found", "create the user, or correct the access key"),
    ("no matched policies", "grant this right to the user"),
    ("has no permission", "grant this right to the user"),
    ("subject of", "create the user before its rights"),
)
_ACL_1 = re.compile(r"\bacl\.common\.AclException: (.*?)(?:, org\.apache\.|\n|$)")
"""ACL 1.0 (plain_acl.yml, before 5.3) refuses a request with an exception, which is a system error. The group: why."""
_DENIED_BY_ACL_1 = (
    ("No accessKey", "set access_key and secret_key: the cluster requires authentication"),
    ("signature failed", "correct the secret key"),
    ("No acl config", "add the account to plain_acl.yml of the broker, or correct the access key"),
    ("", "grant this permission in plain_acl.yml of the broker"),
)


class NoRoute(Retry):
    """A topic that no name server knows: it does not exist, or all of its brokers are down. Only who knew the topic
    before can tell."""


class Illegal(Stop):
    """A message that the broker refuses, or a batch of which it refuses one or its size."""


class Unsupported(Stop):
    """A request that the version of the server does not have."""


class NoGroup(Stop):
    """A subscription group that the broker does not know."""


_KINDS: Mapping[int, type[Stop]] = {
    ResponseCode.UNSUPPORTED: Unsupported,
    ResponseCode.NO_GROUP: NoGroup,
    ResponseCode.MESSAGE_ILLEGAL: Illegal,
}


def problem(code: int, remark: str, doing: str, server: str) -> TrueupError:
    """The meaning of an error response: `Retry`, `Unknown`, or `Stop` if an operator must change something."""
    name = ResponseCode(code).name if code in ResponseCode.__members__.values() else "unknown"
    expected, found = f"{server} to {doing}", f"error {code} {name}: {_short(remark)}"
    if code == ResponseCode.SYSTEM_ERROR and (denied := _ACL_1.search(remark)):
        why = denied.group(1)
        todo = next(todo for text, todo in _DENIED_BY_ACL_1 if text in why)
        return Stop(expected, f"{why} (ACL 1.0)", todo)
    passing = any(text in remark.lower() for text in _PASSING_REMARKS)
    if code in _PASSING or (code == ResponseCode.SYSTEM_ERROR and passing):
        return Retry(expected, found, "retrying; the server is overloaded, starts or stops, or waits for its replicas")
    if code == ResponseCode.SYSTEM_ERROR and _UNSURE in remark:
        return Unknown(expected, found, "it may or may not have happened; check the broker's log")
    if code == ResponseCode.NO_TOPIC:
        return NoRoute(expected, found, "create the topic, or start the brokers that have it")
    if code == ResponseCode.NO_PERMISSION:
        return Stop(expected, found, next((todo for text, todo in _DENIED if text in remark), _DENIED[3][1]))
    if code == ResponseCode.SYSTEM_ERROR and _EXCEEDED in remark.lower():
        return Illegal(expected, found, _TODO[ResponseCode.MESSAGE_ILLEGAL])
    return _KINDS.get(code, Stop)(expected, found, _TODO.get(code, "check the broker's log"))


def _short(remark: str) -> str:
    """The first line of a remark; others are Java's stack trace."""
    return remark.strip().partition("\n")[0][:300] or "no remark"
