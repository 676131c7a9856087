"""Whether verdicts are complete enough to rely on."""

FEW_OF = 100
LATE_MS = 10_000


def few(not_judged: int, ledgers: int) -> bool:
    """Whether so few ledgers wait that lists and counts are nearly complete: at most one in a hundred."""
    return not_judged * FEW_OF <= ledgers


class Readiness:
    """Verdicts are ready once the initial ledgers have been judged, and until more than a few ledgers
    have waited for `LATE_MS`."""

    def __init__(self) -> None:
        self._first_ms: int | None = None
        self._many_since_ms: int | None = None
        self._once = False

    def update(self, not_judged: int, ledgers: int, oldest_ms: int | None, now_ms: int) -> None:
        """Set the current counts, and when the longest-waiting ledger was published (None: unknown, or none waits)."""
        self._first_ms = now_ms if self._first_ms is None else self._first_ms
        later = oldest_ms is not None and oldest_ms > self._first_ms
        small = few(not_judged, ledgers)
        self._once = self._once or not_judged == 0 or (small and later)
        if small:
            self._many_since_ms = None
        elif self._many_since_ms is None:
            self._many_since_ms = now_ms

    def ready(self, now_ms: int) -> bool:
        """Whether verdicts are ready at this time."""
        late = self._many_since_ms is not None and now_ms - self._many_since_ms > LATE_MS
        return self._once and not late
