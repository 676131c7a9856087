"""Start and end of queues, with everything that their brokers acknowledged."""

from collections.abc import Iterable, Sequence

from trueup.connectors.contract import Endpoint, LogId
from trueup.connectors.replication.tail import Bounds
from trueup.connectors.rocketmq.client import messages, topics
from trueup.connectors.rocketmq.client.cluster import RocketMqClient
from trueup.connectors.rocketmq.client.connection import RocketMqResponse
from trueup.connectors.rocketmq.client.dispatch import wait_dispatched
from trueup.connectors.rocketmq.replication.identity import cluster_id
from trueup.connectors.rocketmq.replication.records.binding import Binding
from trueup.state.common.counts import many
from trueup.state.common.errors import Stop, TrueupError


class RocketMqEnd:
    """The part of `connectors.replication.ports.CopyEnd` that reader and writer share."""

    lag_s = 0.0

    def __init__(self, endpoint: Endpoint) -> None:
        self._client, self._id = RocketMqClient(endpoint), ""
        self._bindings = dict[LogId, Binding]()

    def cluster_id(self) -> str:
        """See `ClusterAdmin.cluster_id`."""
        self._id = self._id or cluster_id(self._client)
        return self._id

    def binding(self, log: LogId) -> Binding:
        """What binds the tags of copies to a queue."""
        if log not in self._bindings:
            self._bindings[log] = Binding(self.cluster_id(), log)
        return self._bindings[log]

    def bounds(self, logs: Iterable[LogId]) -> dict[LogId, Bounds | TrueupError]:
        """Start and end of queues, after everything that their brokers acknowledged is visible. Their masters are read
        first; reads and writes that follow go to them."""
        self._client.refresh()
        return bounds(self._client, logs)

    def unsure(self, logs: Iterable[LogId]) -> dict[LogId, TrueupError]:
        """Empty, because topics have no ids. Reads find a recreated topic: see `reader`."""
        del logs
        return {}


def bounds(client: RocketMqClient, logs: Iterable[LogId]) -> dict[LogId, Bounds | TrueupError]:
    """Start and end of queues. An error of one broker is that of its queues; a broker can also refuse some only."""
    by_broker: dict[str, list[LogId]] = {}
    for log in logs:
        by_broker.setdefault(log.place, []).append(log)
    by_log: dict[LogId, Bounds | TrueupError] = {}
    for broker, some in by_broker.items():
        try:
            by_log |= _of_broker(client, broker, some)
        except TrueupError as error:
            by_log |= dict.fromkeys(some, error)
    return by_log


def _of_broker(client: RocketMqClient, broker: str, logs: Sequence[LogId]) -> dict[LogId, Bounds | TrueupError]:
    """The broker reports 0 for a topic or queue that it does not have. Therefore its topics are read after the ends."""
    wait_dispatched(client, broker)
    starts = client.ask_each(broker, [messages.first_offset(log) for log in logs])
    ends = client.ask_each(broker, [messages.end_offset(log) for log in logs])
    names = sorted({log.topic for log in logs})
    there = topics.each_topic(client, broker, names)
    return {log: _bounds(log, start, end, there[log.topic]) for log, start, end in zip(logs, starts, ends, strict=True)}


def _bounds(
    log: LogId,
    start: RocketMqResponse | TrueupError,
    end: RocketMqResponse | TrueupError,
    topic: topics.RocketMqTopic | TrueupError | None,
) -> Bounds | TrueupError:
    if isinstance(start, TrueupError):
        return start
    if isinstance(end, TrueupError):
        return end
    if isinstance(topic, TrueupError):
        return topic
    return _missing(log, topic) or Bounds(messages.offset_of(start), messages.offset_of(end))


def _missing(log: LogId, topic: topics.RocketMqTopic | None) -> TrueupError | None:
    if topic is None:
        found = "no such topic there"
    elif log.number >= (queues := max(topic.read, topic.write)):
        found = f"{many(queues, 'queue')} there"
    else:
        return None
    expected = f"queue {log.number} of topic {log.topic} on broker {log.place}"
    return Stop(expected, found, "create it again, or exclude the topic from the link")
