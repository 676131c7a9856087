"""What was computed for values that occur in records. Whoever writes the records chooses the values."""

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")
MOST, LONGEST = 1_000, 1_000
"""Keys, and bytes or characters of one: at most a few MB together."""


class BoundedCache(dict[K, V]):
    """Results by key. Once it is full, and for a long key, a result is computed each time."""

    def keep(self, key: K, length: int, result: V) -> V:
        """Remember a result if there is room for it. ``length``: bytes or characters of the key."""
        if length <= LONGEST and len(self) < MOST:
            self[key] = result
        return result
