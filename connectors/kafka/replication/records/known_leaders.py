"""The target partitions whose leaders know a producer.

A leader accepts any sequence number of a producer that it does not know (``ProducerAppendInfo.checkSequence``). If it
refused the first request of such a producer, it would write those in flight behind it, and the partition's tail would
show more progress than there is. The first record of a producer is therefore sent to a partition alone.
"""

from collections.abc import Iterable

from trueup.connectors.contract import LogId

KNOWN_S = 60.0
"""Leaders know a producer for this time after a write: less than any usual producer.id.expiration.ms."""


class KnownLeaders:
    """Partitions to which one producer may send several records at a time. ``now``: seconds, monotonic."""

    def __init__(self) -> None:
        self._until = dict[LogId, float]()

    def knows(self, log: LogId, now: float) -> bool:
        """Whether the partition has had an acknowledged write of the producer recently."""
        return self._until.get(log, now) > now

    def renew(self, logs: Iterable[LogId], now: float) -> None:
        """These partitions have had a write, or have one in flight behind an acknowledged one."""
        self._until.update(dict.fromkeys(logs, now + KNOWN_S))

    def clear(self) -> None:
        """The producer was replaced."""
        self._until.clear()
