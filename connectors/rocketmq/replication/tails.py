"""Tails of queues, for the searches of `connectors.replication.tail`."""

from collections.abc import Mapping

from trueup.connectors.contract import LogId
from trueup.connectors.replication.tail import Met, TailSearch
from trueup.connectors.rocketmq.client import messages
from trueup.connectors.rocketmq.client.cluster import RocketMqClient
from trueup.connectors.rocketmq.client.connection import Connection
from trueup.connectors.rocketmq.replication.records.columns import mark_in
from trueup.state.common.errors import Retry, Stop, TrueupError

MOST = 1_000


class RocketMqTails:
    """Implements `connectors.replication.tail.Tails`."""

    def __init__(self, client: RocketMqClient) -> None:
        self._client = client
        self._open: dict[str, Connection] = {}

    def run(self, searches: Mapping[LogId, TailSearch]) -> dict[LogId, TrueupError]:
        """Run all searches to their ends. A queue that may not be read is an error in the result. Raises `Retry` if a
        broker does not deliver messages."""
        refused: dict[LogId, TrueupError] = {}
        for log, search in searches.items():
            try:
                while (span := search.span()) is not None:
                    search.read(span[0], self._read(log, *span))
            except TrueupError as error:
                self._drop(log.place)
                if not isinstance(error, Stop):
                    raise
                refused[log] = error
        return refused

    def _read(self, log: LogId, low: int, high: int) -> list[tuple[bytes, Met]]:
        """The marks of messages from ``low`` on, before ``high``."""
        found, connection = list[tuple[bytes, Met]](), self._connection(log.place)
        at = low
        while at < high:
            pulled = messages.pulled(connection.ask(messages.pull(log, at, min(MOST, high - at))))
            if pulled.next <= at:
                expected = f"messages of {log} from {at} to {high}"
                raise Retry(expected, f"{pulled.start} to {pulled.end}", "retrying; check its broker")
            at = pulled.next
            if pulled.messages is not None:
                for raw, offset in zip(pulled.messages.properties, pulled.messages.offsets, strict=True):
                    if offset < high and (mark := mark_in(bytes(raw))) is not None:
                        found.append((mark[0], Met(mark[1], offset)))
        return found

    def _connection(self, broker: str) -> Connection:
        if broker not in self._open or self._open[broker].ended():
            self._drop(broker)
            self._open[broker] = self._client.connect(broker)
        return self._open[broker]

    def _drop(self, broker: str) -> None:
        if (connection := self._open.pop(broker, None)) is not None:
            connection.close()

    def close(self) -> None:
        """Close the connections."""
        for broker in [*self._open]:
            self._drop(broker)
