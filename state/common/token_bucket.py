"""A rate limit. Time is passed in."""


class TokenBucket:
    """Grants ``rate`` tokens per unit of time, and at once at most the tokens of ``burst`` units, but at least one.
    The bucket starts full; a rate of 0 means no limit.

    The bucket can be overdrawn: over any time ``t`` it grants at most ``rate * (t + burst)`` tokens plus one
    overdraft. The caller chooses the unit of time.
    """

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate, self._burst, self._at = rate, burst, now
        self._level = self._most

    @property
    def _most(self) -> float:
        return max(1.0, self._rate * self._burst)

    def limit(self, rate: float) -> None:
        """Change the rate from the next call on."""
        self._rate = rate

    def room(self, now: float) -> float:
        """Tokens available now; a value below 1 means none."""
        if not self._rate:
            return float("inf")
        self._level = min(self._most, self._level + max(0.0, now - self._at) * self._rate)
        self._at = now
        return self._level

    def take(self, tokens: float) -> None:
        """Take tokens, even if fewer are available."""
        self._level -= tokens

    def wait(self, now: float) -> float:
        """Time until one token is available."""
        return max(0.0, (1.0 - self.room(now)) / self._rate) if self._rate else 0.0
