"""The rate limit of a link."""

from trueup.connectors.contract import Limits
from trueup.state.common.token_bucket import TokenBucket

BURST_S = 0.1
"""The burst in seconds."""


class Rate:
    """Limits of records and bytes per second. Times are in seconds of a monotonic clock."""

    def __init__(self, limits: Limits, now: float) -> None:
        self._records = TokenBucket(limits.records_per_s, BURST_S, now)
        self._bytes = TokenBucket(limits.bytes_per_s, BURST_S, now)

    def records(self, now: float, most: int) -> int:
        """The number of records that may be read now, 0 to ``most``."""
        return 0 if self._bytes.room(now) < 1 else int(max(0.0, min(self._records.room(now), most)))

    def take(self, records: int, size: int) -> None:
        """Count records that were read."""
        self._records.take(records)
        self._bytes.take(size)

    def wait_s(self, now: float) -> float:
        """Seconds until records may be read again."""
        return max(self._records.wait(now), self._bytes.wait(now))
