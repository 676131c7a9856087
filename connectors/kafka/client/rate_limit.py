"""How fast a link may go: a bucket that fills at a rate and that may be overdrawn by what was taken already."""

from trueup.connectors.contract import Limits

BURST_S = 0.1


class Bucket:
    """Grants ``rate`` units a second, at most ``BURST_S`` seconds' worth at once, never less than one. 0: no limit.

    Over any ``t`` seconds it grants at most ``rate * t + burst`` units, and what one overdraft takes. Time is in
    seconds of any clock that only rises.
    """

    def __init__(self, rate: float, now: float) -> None:
        self.rate, self.burst = rate, max(1.0, rate * BURST_S)
        self._level, self._at = self.burst, now

    def room(self, now: float) -> float:
        """Units that may be taken at once; below 1: none."""
        if not self.rate:
            return float("inf")
        self._level = min(self.burst, self._level + (now - self._at) * self.rate)
        self._at = now
        return self._level

    def take(self, units: float) -> None:
        """Take them, even if there are not so many."""
        self._level -= units

    def wait_s(self, now: float) -> float:
        """Seconds until one unit may be taken."""
        return max(0.0, (1.0 - self.room(now)) / self.rate) if self.rate else 0.0


class Rate:
    """Records and bytes a second, both kept."""

    def __init__(self, limits: Limits, now: float) -> None:
        self._records, self._bytes = Bucket(limits.records_per_s, now), Bucket(limits.bytes_per_s, now)

    def records(self, now: float, most: int) -> int:
        """How many records may be read now, 0 to ``most``."""
        return 0 if self._bytes.room(now) < 1 else int(max(0.0, min(self._records.room(now), most)))

    def take(self, records: int, size: int) -> None:
        """Count what was read."""
        self._records.take(records)
        self._bytes.take(size)

    def wait_s(self, now: float) -> float:
        """Seconds until something may be read again."""
        return max(self._records.wait_s(now), self._bytes.wait_s(now))
