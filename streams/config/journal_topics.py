"""Compares the topics of the journal with those of earlier runs and of the start of this one.

If settings may have been lost, every mode is observe until an operator confirms the present ones. If a topic was
deleted or created again under the running application, the application ends: the next start creates what is missing and
reads the cluster again.
"""

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from trueup.state.common.errors import Retry
from trueup.state.instance.journal_topics import (
    UNCONFIRMED,
    JournalTopicState,
    change_of,
    expiring,
    lost,
    missing,
    replaced,
    unreadable,
)
from trueup.streams.config.live import Live, written
from trueup.streams.journal.history import ITSELF
from trueup.streams.journal.topic import CONFIG, Put, declared
from trueup.streams.rows import Row

log = logging.getLogger(__name__)
CHECK_S = 10.0
CONFIRMED = "journal.confirmed"
LOOKS = 3
"""A topic is deleted if this number of successive looks do not find it: a broker that starts may not know it yet."""
LARGEST_FILE = 1 << 20


class JournalTopicAdmin(Protocol):
    """The methods of `streams.journal.journal.Journal` that are used here."""

    bootstrap: str

    def topic(self, what: str) -> str:
        """The full name of a topic."""

    def states(self) -> dict[str, JournalTopicState]:
        """The declared topics that exist, by full name."""

    def begin(self, what: str) -> int:
        """The first offset of partition 0 of a topic."""

    def put(self, records: Iterable[Put]) -> None:
        """Write records."""


def recreated(journal: JournalTopicAdmin, created: Sequence[str], now_ms: int) -> None:
    """Write into the config topic that it was missing, if this start created it beside other topics of the journal.

    The process that creates the topic need not be the one that leads: a standby also creates topics. Raises `Retry`.
    """
    if journal.topic(CONFIG) in created and len(created) < len(declared()):
        journal.put([written(CONFIRMED, json.dumps(UNCONFIRMED), now_ms, ITSELF)])


class JournalTopics:
    """The topics of one run. ``file``: the file that holds the place of the config topic by its name; ``problems``:
    what an operator has to correct."""

    def __init__(self, journal: JournalTopicAdmin, live: Live, file: Path) -> None:
        self._journal, self._live, self._file = journal, live, file
        self._config = journal.topic(CONFIG)
        self._compacted = {
            journal.topic(topic.name) for topic in declared() if topic.configs.get("cleanup.policy") == "compact"
        } - {journal.topic("history")}
        self._before: Mapping[str, str] = {}
        self._absent = 0
        self._first = True
        self.problems: list[str] = []

    def start(self) -> None:
        """Decide whether settings may have been lost since the last run. Raises `Retry`."""
        states = self._journal.states()
        if self._config not in states:
            raise Retry(f"topic {self._config}", "none", "restart an instance: it creates what is missing")
        self._before = {name: state.id for name, state in states.items()}
        self._judge(states)
        self._first = False

    def check(self, ended: Callable[[], None]) -> None:
        """Look at the topics again. ``ended`` is called if the application must end."""
        with suppress(Retry):  # the status reports the journal as a source of its own
            self._look(ended)

    def _look(self, ended: Callable[[], None]) -> None:
        states = self._journal.states()
        gone, new = missing(self._before, states), replaced(self._before, states)
        self._absent = self._absent + 1 if gone else 0
        if change := change_of(gone, new):
            self._live.restrain(f"{change} while Trueup runs")
        if new or self._absent >= LOOKS:
            log.error("topics of the journal changed", extra={"found": change})
            ended()
        elif not gone:
            self._judge(states)

    def _judge(self, states: Mapping[str, JournalTopicState]) -> None:
        config = states[self._config]._replace(begin=self._journal.begin(CONFIG))
        why = self._lost(config)
        if why and not self._first and self._held(config):
            # This run holds what the topic lost.
            self._live.write_again()
            self._live.set(CONFIRMED, config.place)
            log.warning("settings restored in the journal", extra={"lost": why})
            why = ""
        if why:
            self._doubt(config, why)
        else:
            self._remember(config)
        compacted = {name: state for name, state in states.items() if name in self._compacted}
        self.problems = [
            *([self._live.restraint] if why else []),
            *expiring(compacted, self._journal.bootstrap),
            *unreadable(compacted),
        ]

    def _lost(self, config: JournalTopicState) -> str:
        return lost(config, self._live.now.journal.confirmed, self._remembered())

    def _held(self, config: JournalTopicState) -> bool:
        """Whether this run began with all settings of this topic, which lost records since."""
        return not self._live.restraint and self._before[self._config] == config.id

    def _doubt(self, config: JournalTopicState, why: str) -> None:
        self._live.restrain(
            f"settings may have been lost: {self._config}: {why}; every mode is observe; set lost settings again, then "
            f"run `trueup config set {CONFIRMED} {config.place}`"
        )

    def _remember(self, config: JournalTopicState) -> None:
        if self._live.now.journal.confirmed != config.place:
            self._live.set(CONFIRMED, config.place)
        self._live.restrain("")
        if self._remembered() != config.place:
            content = json.dumps({**self._content(), self._config: config.place})
            draft = self._file.with_suffix(".part")
            try:
                draft.write_text(content)
                draft.replace(self._file)
            except OSError as error:
                raise Retry(f"{self._file} to be written", str(error.strerror), "free space in data_dir") from error

    def _remembered(self) -> str:
        place = self._content().get(self._config, "")
        return place if isinstance(place, str) else ""

    def _content(self) -> Row:
        """The file; empty if it does not exist or is damaged: then only the topic itself tells."""
        try:
            with self._file.open("rb") as opened:
                content = json.loads(opened.read(LARGEST_FILE))
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}
