"""Tails of queues, for the searches of `connectors.replication.tail`."""

from collections.abc import Callable, Mapping

from trueup.connectors.contract import LogId
from trueup.connectors.replication.tail import CopiedRecord, TailSearch
from trueup.connectors.rocketmq.client import messages
from trueup.connectors.rocketmq.client.cluster import RocketMqClient
from trueup.connectors.rocketmq.client.connection import RocketMqConnection
from trueup.connectors.rocketmq.replication.records.binding import Binding
from trueup.connectors.rocketmq.replication.records.columns import mark_in
from trueup.state.common.errors import Retry, Stop, TrueupError

MOST = 1_000


class RocketMqTails:
    """Implements `connectors.replication.tail.Tails`. ``binding``: the binding of a queue."""

    def __init__(self, client: RocketMqClient, binding: Callable[[LogId], Binding]) -> None:
        self._client, self._binding = client, binding
        self._open: dict[str, RocketMqConnection] = {}

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

    def _read(self, log: LogId, low: int, high: int) -> list[tuple[bytes, CopiedRecord]]:
        """The marks of messages that links wrote, from ``low`` on, before ``high``."""
        marks, connection, binding = list[tuple[bytes, CopiedRecord]](), self._connection(log.place), self._binding(log)
        at = low
        while at < high:
            pulled = messages.pulled(connection.ask(messages.pull(log, at, min(MOST, high - at))))
            if pulled.next <= at:
                expected = f"messages of {log} from {at} to {high}"
                raise Retry(expected, f"{pulled.start} to {pulled.end}", "retrying; check its broker")
            at = pulled.next
            if (some := pulled.messages) is not None:
                sizes = map(len, some.bodies)
                for raw, offset, born, size in zip(some.properties, some.offsets, some.born, sizes, strict=True):
                    if offset < high and (mark := mark_in(bytes(raw), born, size, binding)) is not None:
                        marks.append((mark[0], CopiedRecord(mark[1], offset)))
        return marks

    def _connection(self, broker: str) -> RocketMqConnection:
        kept = self._open.get(broker)
        if kept is None or kept.ended() or self._client.replaced(broker, kept):
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
