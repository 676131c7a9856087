"""Settings that can be changed while the application runs, through the compacted config topic.

A record of the topic applies to every running application of the cluster. A record that is not readable, has no live
key or is out of bounds is rejected and reported; the previous value remains.
"""

import json
import logging
import threading
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from trueup.state.common.errors import BadSettings, TrueupError
from trueup.state.settings.settings import Settings, change, live_keys, value_of
from trueup.streams.journal.journal import Journal, Record
from trueup.streams.journal.topic import CONFIG

log = logging.getLogger(__name__)
APPLY_S = 5.0
T = TypeVar("T")


class Live:
    """The effective settings. Reading ``now`` is safe from any thread.

    ``refused``: position and problem of the newest record of each key whose newest record is invalid.
    """

    def __init__(self, base: Settings, journal: Journal, clock: Callable[[], int]) -> None:
        self._base, self._journal, self._clock = base, journal, clock
        self._overlay: dict[str, Any] = {}
        self._newest: dict[bytes, int] = {}
        self._changed = threading.Condition()
        self.now = base
        self.refused: dict[str, tuple[str, str]] = {}
        self.listeners: list[Callable[[], None]] = []

    def load(self) -> None:
        """Apply the existing records of the topic."""
        for record in self._journal.read(CONFIG, bad=self._refuse):
            self._seen(record)

    def follow(self, stop: threading.Event) -> None:
        """Apply changes until ``stop``. Blocks. Listeners are called first, because a failure may have ended the last
        call before all of them were."""
        self._notify()
        self._journal.follow(CONFIG, stop, self._seen, self._refuse)

    def set(self, name: str, value: Any) -> Any:
        """Publish a change and wait until it is effective here. Returns the new value. None restores the file's
        value."""
        if value is not None:
            change(self.now, name, value)
        elif name not in live_keys(self._base):
            raise BadSettings([f"{name}: expected a live key, one of {', '.join(live_keys(self._base))}"])
        wanted = None if value is None else value_of(change(self._base, name, value), name)
        record = None if value is None else {"name": name, "value": json.dumps(wanted), "at_ms": self._clock()}
        self._journal.put([(CONFIG, name.encode(), record)])
        with self._changed:
            self._changed.wait_for(lambda: self._overlay.get(name) == wanted, APPLY_S)
        return value_of(self.now, name)

    def _seen(self, record: Record) -> None:
        if self._known(record):
            return
        name = record.key.decode(errors="replace")
        try:
            value = None if record.value is None else json.loads(record.value["value"])
            overlay = {k: v for k, v in {**self._overlay, name: value}.items() if v is not None}
            settings = self._base
            for key, chosen in overlay.items():
                settings = change(settings, key, chosen)
        except BadSettings as error:
            self._note(record, "; ".join(error.problems))
            return
        except (ValueError, RecursionError):
            self._note(record, f"{name[:200]}: expected JSON; found something else")
            return
        with self._changed:
            self.refused.pop(name, None)
            self._overlay, self.now = overlay, settings
            self._changed.notify_all()
        self._notify()

    def _notify(self) -> None:
        for listener in self.listeners:
            listener()

    def _refuse(self, record: Record, error: TrueupError) -> None:
        if not self._known(record):
            self._note(record, str(error))

    def _known(self, record: Record) -> bool:
        """Whether this record or a newer one of its key was applied: an old value must not be applied again."""
        known = record.offset <= self._newest.get(record.key, -1)
        self._newest[record.key] = max(record.offset, self._newest.get(record.key, -1))
        return known

    def _note(self, record: Record, problem: str) -> None:
        self.refused[record.key.decode(errors="replace")] = record.where, problem
        log.warning("config record refused", extra={"where": record.where, "problem": problem})


class Effective(Protocol):
    """An object with the effective settings: `Live`."""

    @property
    def now(self) -> Settings:
        """The effective settings."""


class LiveSection(Generic[T]):
    """The effective values of one section, or of one entry of a table. Reading ``current`` is safe from any thread."""

    def __init__(self, read: Callable[[], T]) -> None:
        self._read = read

    @classmethod
    def of(cls, live: Effective, keys: type[T], entry: str = "") -> "LiveSection[T]":
        """The section with this dataclass, or this entry of the table with it."""
        return cls(lambda: live.now.table(keys)[entry] if entry else live.now.section(keys))

    @property
    def current(self) -> T:
        """The present values. Raises `LookupError` if there is no such section or entry."""
        return self._read()

    def changed(self, change: Callable[[T], T]) -> "LiveSection[T]":
        """The present values with a change."""
        return LiveSection(lambda: change(self.current))
