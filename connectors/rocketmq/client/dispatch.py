"""Waits until the queues of a broker have everything that it acknowledged.

A broker acknowledges a message when it is in the commit log. A thread of it then adds the message to its queue
(DefaultMessageStore.java, ReputMessageService); until then neither readers nor the end of the queue show it. How long
that takes has no bound, but the broker reports the bytes that are left.

That thread does not pass the confirmed offset (CommitLog.java, getConfirmOffset): with SYNC_FLUSH what is on the disk,
in controller mode what the replicas in sync have. The response to a message behind it is not OK, and the reported bytes
do not include the message.
"""

import time

from trueup.connectors.contract import LogId
from trueup.connectors.rocketmq.client import messages, topics
from trueup.connectors.rocketmq.client.cluster import RocketMqClient
from trueup.state.common.errors import BadBytes, Retry

WAIT_S = 10.0
_FIRST_S, _LAST_S = 0.001, 0.1


def wait_dispatched(client: RocketMqClient, broker: str, wait_s: float = WAIT_S) -> None:
    """Return when all messages that the broker confirmed before the call are in their queues. Messages that it stored
    without confirming them are not waited for; see `wait_shown`. Raises `Retry` if that takes longer than ``wait_s``
    seconds, and like `RocketMqClient.ask`."""
    until, pause_s = time.monotonic() + wait_s, _FIRST_S
    done, target = _places(client, broker)
    while done < target:
        if time.monotonic() >= until:
            lag = f"{target - done} bytes of its commit log that are in no queue yet"
            raise Retry(f"broker {broker} to add its messages to their queues", lag, "retrying; its disk may be slow")
        time.sleep(pause_s)
        pause_s = min(_LAST_S, 2 * pause_s)
        done, _ = _places(client, broker)


def wait_shown(client: RocketMqClient, log: LogId, end: int, until_s: float) -> None:
    """Return when the queue ends at ``end`` or later, as its readers see it. Raises `Retry` if it does not at
    ``until_s`` (`time.monotonic`), and like `RocketMqClient.ask`."""
    pause_s = _FIRST_S
    while (offset := messages.offset_of(client.ask(log.place, messages.end_offset(log)))) < end:
        if time.monotonic() >= until_s:
            raise unconfirmed(log, end, offset)
        time.sleep(pause_s)
        pause_s = min(_LAST_S, 2 * pause_s)


def unconfirmed(log: LogId, end: int, found: int) -> Retry:
    """The error of a queue that does not show messages which its broker stored."""
    todo = "retrying; its broker has not confirmed what it stored: check its disk and its replicas"
    return Retry(f"{log} to end at {end}", f"that it ends at {found}", todo)


def _places(client: RocketMqClient, broker: str) -> tuple[int, int]:
    """The offset in the commit log up to which messages are in queues, or a lower one, and the end of the commit log.
    The broker reads the end first, then the bytes that are left."""
    figures = topics.runtime(client, broker)
    try:
        end = int(figures["commitLogMaxOffset"])
        return end - int(figures["dispatchBehindBytes"]), end
    except (KeyError, ValueError) as error:
        where = f"the figures of broker {broker}"
        raise BadBytes(
            where, 0, "commitLogMaxOffset and dispatchBehindBytes", repr(error), "use 5.3 or later"
        ) from error
