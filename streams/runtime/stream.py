"""The interface of a stream, and the rows that every stream reports, in one shape for all.

A stream is one subject: it observes, decides, acts and confirms. `streams.app` makes each stream of the catalog, loads
it, lets it watch and begin, and ends it; `streams.api` asks it. Whatever a stream leaves out of the interface it does
not have. JSON of the rows is made here and nowhere else.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from trueup.state.common.errors import Refused
from trueup.streams.journal.history_row import HistoryRow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]
Session = Callable[[], "SparkSession"]
"""The session of Spark that runs now: another one after the end of the last."""
AWAITING = "awaiting approval"
EVERY_ACTION = ("ledger", "link")
"""What the JSON of an action always names; None where the action does not concern it."""


@dataclass(frozen=True, slots=True)
class Source:
    """Something that a stream listens to. ``state``: up, slow or down; ``age_ms``: since it was last heard."""

    name: str
    state: str
    age_ms: int
    detail: str


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """A stream at a glance.

    ``counts``: what it watches, by verdict or state. ``oldest_ms``: age of the oldest difference, None without one.
    ``not_ready``: why its findings cannot be relied upon; ``problems``: what else is wrong. ``query``: the query whose
    signs of life tell that the Spark session lives, empty where any query's do; ``silent_ms``: the longest time that
    its queries are silent by design. ``fields``: what it adds to the JSON of the status.
    """

    mode: str
    paused: bool = False
    counts: Mapping[str, int] = field(default_factory=dict)
    oldest_ms: int | None = None
    sources: Sequence[Source] = ()
    problems: Sequence[str] = ()
    not_ready: Sequence[str] = ()
    query: str = ""
    silent_ms: int = 0
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as declared. ``about``: what it is, by noun; ``stage``: of what is done about it; ``more``:
    what the stream adds."""

    about: Mapping[str, Any]
    verdict: str
    rule: str
    reason: str
    since_ms: int | None
    stage: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Filter:
    """Which findings are asked for; None: whatever the verdict or the rule."""

    verdict: str | None = None
    rule: str | None = None
    limit: int = 100


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One action. ``about``: what it concerns, by noun; ``next_ms``: when it is tried again; ``requirements``: what
    must still hold when it is carried out; ``measured``: copies and racks, of an action on a ledger."""

    id: str
    kind: str
    rule: str
    reason: str
    stage: str
    about: Mapping[str, Any]
    next_ms: int | None = None
    requirements: Mapping[str, Any] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)
    measured: Mapping[str, int | None] = field(default_factory=dict)


class Listing(list[Row]):
    """Rows of which a limit may have cut some: ``total`` is how many there are."""

    def __init__(self, rows: Iterable[Row], total: int) -> None:
        super().__init__(rows)
        self.total = total


class Stream(ABC):
    """One subject. Its methods are called from several threads and return soon.

    The order of its life: made, `load`, `watch`, `begin`, and at the end `end` beside the queries, then `close`.
    """

    name: str

    def load(self) -> None:
        """Take up what earlier runs put on the journal."""
        return

    def watch(self) -> None:
        """Begin to observe; Spark does not run yet."""
        return

    def begin(self, spark: Session) -> None:  # noqa: ARG002 - of those that have no query
        """Begin queries and loops."""
        return

    def end(self) -> None:
        """Take nothing more, so that queries come to the end of a batch."""
        return

    def close(self) -> None:
        """Let go of what the last batch still needed."""
        return

    def progressed(self, query: str, progress: Mapping[str, Any]) -> None:  # noqa: ARG002 - see begin
        """Take a progress report of Spark's. Called for every query."""
        return

    def heard(self, query: str) -> None:  # noqa: ARG002 - see begin
        """Take a sign of life of a query. Called for every query."""
        return

    @abstractmethod
    def status(self, now_ms: int) -> StreamStatus:
        """Its part of the status."""

    def rows(self, noun: str, query: Mapping[str, Any]) -> list[Row]:
        """The list of one of its nouns. ``query``: the parameters that the noun declares."""
        raise LookupError(f"the stream {self.name} lists no {noun}: {dict(query)}")

    def describe(self, noun: str, names: Mapping[str, Any]) -> Any:
        """Everything about one thing, an object or rows. ``names``: the variables of its path. Raises `Refused`."""
        raise LookupError(f"the stream {self.name} describes no {noun}: {dict(names)}")

    def execute(self, verb: str, names: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any:
        """Carry out one of its verbs. ``names``: the variables of its path. Raises `Refused`."""
        raise LookupError(f"the stream {self.name} has no verb {verb}: {dict(names)}, {dict(arguments)}")

    def incomplete(self, noun: str) -> Sequence[str]:  # noqa: ARG002 - of those that always know all
        """Why the list of this noun may lack rows or show old ones."""
        return ()

    def findings(self, wanted: Filter) -> tuple[Sequence[Finding], int]:  # noqa: ARG002 - of those without findings
        """What is not as declared, the most urgent first, and how many there are without the limit."""
        return (), 0

    def plan(self) -> list[PlanRow]:
        """Actions that are due, wait for an operator or are under way."""
        return []

    def approve(self, ids: Sequence[str] | None) -> list[PlanRow]:
        """Approve these actions of its plan, or all that wait; those that were approved. Raises `Refused`."""
        raise Refused("actions that wait for approval", f"none of the stream {self.name}: {ids}", "see `trueup plan`")


def waiting(rows: Sequence[PlanRow], ids: Sequence[str] | None) -> list[PlanRow]:
    """The rows that wait for approval, of these ids."""
    return [row for row in rows if row.stage == AWAITING and (ids is None or row.id in ids)]


def finding_json(found: Finding) -> Row:
    """A finding as programs read it."""
    return {
        **found.about, "verdict": found.verdict, "rule": found.rule, "reason": found.reason,
        "since_ms": found.since_ms, "stage": found.stage, **found.more, "about": _names(found.about),
    }  # fmt: skip


def plan_json(row: PlanRow) -> Row:
    """An action as programs read it."""
    return {
        "id": row.id, "kind": row.kind, **dict.fromkeys(EVERY_ACTION), **row.about, "rule": row.rule,
        "reason": row.reason, "copies": None, "racks": None, **row.measured, "stage": row.stage,
        "about": _names(row.about),
        "next_ms": row.next_ms, "requirements": dict(row.requirements), "evidence": dict(row.evidence),
    }  # fmt: skip


def _names(about: Mapping[str, Any]) -> str:
    return " ".join(str(name) for name in about.values() if name not in (None, ""))


def source_json(source: Source) -> Row:
    """A source as programs read it."""
    return asdict(source)


def approval(row: PlanRow, now_ms: int, broker: str | None = None) -> HistoryRow:
    """The row of the history that says that an operator approved an action."""
    ledger, link = row.about.get("ledger"), row.about.get("link")
    return HistoryRow(now_ms, row.id, row.kind, "approved", ledger, link, broker, row.rule, row.reason)
