"""The journal's topics with observations of BookKeeper."""

from collections.abc import Sequence
from typing import Any

from trueup.state.bookkeeper.ledgers import Ledgers
from trueup.state.placement.view import Rows
from trueup.streams.journal.decode import ledger_rows, mark_rows
from trueup.streams.journal.topic import SETTING, JournalTopic, declare, name_of


def _ledgers(bodies: Sequence[bytes]) -> tuple[Any, Ledgers]:
    rows = ledger_rows(bodies)
    return rows.ledger, rows


def _marks(bodies: Sequence[bytes]) -> tuple[Any, Rows]:
    rows = mark_rows(bodies)
    return rows["ledger"], rows


TOPOLOGY_KEY = b"topology"
TOPICS = declare(
    JournalTopic(
        "reached", SETTING, observed=True, signed=True, key=name_of, form="bookkeeper.reached:observed"
    ),
    JournalTopic("ledgers", "bookkeeper/schemas/ledger.avsc", partitioned=True, observed=True, columns=_ledgers),
    JournalTopic("marks", "bookkeeper/schemas/mark.avsc", partitioned=True, observed=True, columns=_marks),
    JournalTopic(
        "topology", "bookkeeper/schemas/topology.avsc", observed=True, signed=True, key=lambda _: TOPOLOGY_KEY,
        form="bookkeeper.journal:topology_of",
    ),
)  # fmt: skip
REACHED, LEDGERS, MARKS, TOPOLOGY = (topic.name for topic in TOPICS)
