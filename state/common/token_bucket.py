"""A rate limit. Time is passed in."""


class TokenBucket:
    """Grants ``rate`` tokens in a unit of time, and at once at most what ``burst`` units of time bring, never less than
    one. It starts full; a rate of 0 is no limit.

    It may be overdrawn by what was taken already: over any time ``t`` it grants at most ``rate * (t + burst)`` tokens
    and what one overdraft takes. The unit of time is the caller's choice.
    """

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate, self._burst, self._at = rate, burst, now
        self._level = self._most

    @property
    def _most(self) -> float:
        return max(1.0, self._rate * self._burst)

    def limit(self, rate: float) -> None:
        """Grant so many from the next call on."""
        self._rate = rate

    def room(self, now: float) -> float:
        """Tokens that may be taken at once; below 1: none."""
        if not self._rate:
            return float("inf")
        self._level = min(self._most, self._level + max(0.0, now - self._at) * self._rate)
        self._at = now
        return self._level

    def take(self, tokens: float) -> None:
        """Take them, even if there are not so many."""
        self._level -= tokens

    def wait(self, now: float) -> float:
        """Time until one token may be taken."""
        return max(0.0, (1.0 - self.room(now)) / self._rate) if self._rate else 0.0
