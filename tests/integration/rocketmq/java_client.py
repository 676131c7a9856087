"""RocketMQ's Java client on a machine that is busy."""

from py4j.protocol import Py4JJavaError

_PASSING = ("not exist", "RemotingTimeoutException", "RemotingConnectException")


def passes(error: Py4JJavaError) -> bool:
    """Whether the client only had no time: it gives up after 3 s if a server is slow, or another of its threads looks
    up routes (MQClientInstance.java, updateTopicRouteInfoFromNameServer)."""
    text = str(error.java_exception)
    return any(each in text for each in _PASSING)
