"""Settings that can be changed while the application runs, through the compacted config topic.

A record of the topic applies to every running application of the cluster. A record that is not readable, has no live
key or is out of bounds is rejected and reported; the previous value remains. A mode above its bound of
access.modes_at_most is reported, and the bound applies.
"""

import json
import logging
import threading
from collections import Counter
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from trueup.state.common.errors import BadSettings, TrueupError
from trueup.state.common.options import MODES
from trueup.state.settings.settings import Settings, change, exceeds, live_keys, mode_at_most, observing, value_of
from trueup.streams.journal.history import ITSELF, TOPIC, WHO, History
from trueup.streams.journal.history_row import HistoryRow
from trueup.streams.journal.journal import Journal, JournalRecord
from trueup.streams.journal.topic import CONFIG, Put

log = logging.getLogger(__name__)
APPLY_S = 5.0
LONGEST_NAME = 200
T = TypeVar("T")


def written(name: str, text: str | None, at_ms: int, by: str) -> Put:
    """The record of a live key for `Journal.put`. ``text``: the value as JSON; None removes the record."""
    record: dict[str, object] = {"name": name, "value": text, "at_ms": at_ms, "by": by}
    return CONFIG, name.encode(), None if text is None else record


class Live:
    """The effective settings. Reading ``now`` is safe from any thread.

    ``refused``: position and problem of the newest record of each key whose newest record is invalid; ``restraint``:
    why every mode is observe, whatever is set; empty if the modes apply.
    """

    def __init__(
        self, base: Settings, journal: Journal, clock: Callable[[], int], history: History | None = None
    ) -> None:
        self._base, self._journal, self._clock, self._history = base, journal, clock, history
        self._own: Counter[tuple[str, str | None]] = Counter()
        self._following = False
        self._overlay: dict[str, object] = {}
        self._newest: dict[bytes, int] = {}
        self._changed = threading.Condition()
        self.now = self._chosen = base
        self.restraint = ""
        self.refused: dict[str, tuple[str, str]] = {}
        self.listeners: list[Callable[[], None]] = []

    def load(self) -> None:
        """Apply the existing records of the topic."""
        for record in self._journal.read(CONFIG):
            self._seen(record)

    def attribute(self, history: History) -> None:
        """Add changes to this history from now on."""
        self._history = history

    def follow(self, stop: threading.Event) -> None:
        """Apply changes until ``stop``. Blocks. Listeners are called first, because a failure may have ended the last
        call before all of them were."""
        self._following = True
        self._notify()
        self._journal.follow(CONFIG, stop, self._seen)

    def restrain(self, why: str) -> None:
        """Let every mode be observe for this reason; empty: let the modes apply."""
        with self._changed:
            unchanged, self.restraint = self.restraint == why, why
            self.now = observing(self._chosen) if why else self._chosen
        if not unchanged:
            log.warning("modes replaced by observe" if why else "modes applied", extra={"problem": why})
            self._notify()

    def set(self, name: str, value: object) -> object:
        """Publish a change and wait until it is effective here. Returns the new value. None restores the file's value,
        or removes the refused record of a key that is not a live one, such as of a link that is not declared any more;
        then there is no value."""
        is_live = name in live_keys(self._base)
        if value is not None:
            change(self.now, name, value)
        elif not is_live and name not in self.refused:
            raise BadSettings([f"{name}: expected a live key, one of {', '.join(live_keys(self._base))}"])
        new_value = None if value is None else value_of(change(self._base, name, value), name)
        if (most := mode_at_most(self._base, name)) and exceeds(new_value, most):
            raise BadSettings([f"{name}: expected at most {most}, by access.modes_at_most; found {new_value}"])
        if self.restraint and name.endswith(".mode") and new_value != MODES[0]:
            raise BadSettings([f"{name}: expected the settings of the journal to be complete; found: {self.restraint}"])
        text = None if value is None else json.dumps(new_value)
        by = WHO.get()
        self._own[name, text] += 1
        try:
            self._journal.put([written(name, text, self._clock(), by)])
        except TrueupError:
            self._own[name, text] -= 1
            raise
        log.info("setting changed", extra={"key": name, "value": text, "by": by})
        if not self._following:
            self.load()
        with self._changed:
            self._changed.wait_for(
                lambda: self._overlay.get(name) == new_value and (is_live or name not in self.refused), APPLY_S
            )
        return value_of(self.now, name) if is_live else None

    def write_again(self) -> None:
        """Write the newest value of every key again, after the topic lost records. Raises `Retry`."""
        with self._changed:
            overlay = dict(self._overlay)
        texts = {name: json.dumps(value) for name, value in overlay.items()}
        for name, text in texts.items():
            self._own[name, text] += 1
        now_ms = self._clock()
        try:
            self._journal.put(written(name, text, now_ms, ITSELF) for name, text in texts.items())
        except TrueupError:
            self._own.subtract(texts.items())
            raise

    def _seen(self, record: JournalRecord) -> None:
        if self._known(record):
            return
        name = record.key.decode(errors="backslashreplace")
        try:
            value = None if record.value is None else json.loads(record.value["value"])
            most = mode_at_most(self._base, name)
            asked, value = value, most if most and exceeds(value, most) else value
            overlay = {k: v for k, v in {**self._overlay, name: value}.items() if v is not None}
            settings = self._base
            for key, setting in overlay.items():
                settings = change(settings, key, setting)
        except BadSettings as error:
            self._note(record, "; ".join(error.problems))
            return
        except (ValueError, RecursionError):
            self._note(record, f"{name[:200]}: expected JSON; found something else")
            return
        with self._changed:
            self.refused.pop(name, None)
            before, self._overlay, self._chosen = self._chosen, overlay, settings
            self.now = observing(settings) if self.restraint else settings
            self._changed.notify_all()
        if value != asked:
            self._note(
                record, f"{name}: expected at most {most}, by access.modes_at_most; found {asked}; {most} applies"
            )
        self._attribute(record, name, before)
        self._notify()

    def _attribute(self, record: JournalRecord, name: str, before: Settings) -> None:
        """Record who changed a setting, if it was not this application. The name in the record is not verified: whoever
        may write the topic may write any."""
        text = None if record.value is None else record.value["value"]
        if self._own[name, text] > 0:
            self._own[name, text] -= 1
        elif self._following and name in live_keys(self.now):
            claimed = "" if record.value is None else record.value["by"][:LONGEST_NAME]
            who = f"{TOPIC} ({claimed})" if claimed else TOPIC
            detail = f"{name}: {value_of(before, name)} > {value_of(self._chosen, name)}"
            log.info("setting changed", extra={"key": name, "value": text, "by": who, "where": record.where})
            if self._history is not None:
                link = name.split(".")[1] if name.startswith("links.") else None
                outcome = "default" if text is None else "set"
                self._history.add(
                    HistoryRow(self._clock(), f"config-{name}", "config", outcome, link=link, detail=detail, who=who)
                )

    def _notify(self) -> None:
        for listener in self.listeners:
            listener()

    def _known(self, record: JournalRecord) -> bool:
        """Whether this record or a newer one of its key was applied: an old value must not be applied again."""
        applied = record.offset <= self._newest.get(record.key, -1)
        self._newest[record.key] = max(record.offset, self._newest.get(record.key, -1))
        return applied

    def _note(self, record: JournalRecord, problem: str) -> None:
        self.refused[record.key.decode(errors="backslashreplace")] = record.where, problem
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
