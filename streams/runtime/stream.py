"""The interface of a stream, and the rows that all streams report.

A stream handles one subject: it observes, decides, acts and confirms. `streams.app` creates each stream of the catalog
and calls `load`, `watch`, `begin`, `end` and `close`; `streams.api` calls the other methods. Only `status` is required.
This module converts rows to JSON.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from trueup.streams.progress import QueryProgress
from trueup.streams.rows import Names, Row, RowQuery
from trueup.streams.runtime.fields import StatusFields

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Session = Callable[[], "SparkSession"]
"""Returns the current Spark session; a new one replaces a session that ended."""
AWAITING = "awaiting approval"
EVERY_FINDING = 1 << 30
EVERY_ACTION = ("ledger", "link")
"""Fields that the JSON of every action has; null if the action does not concern one."""


@dataclass(frozen=True, slots=True)
class ObservationSource:
    """A source of observations."""

    name: str
    state: str
    """One of up, slow and down."""
    age_ms: int | None
    """The time since the last observation in ms; None if there was no observation, or if its time is not known."""
    detail: str


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """The status of a stream."""

    mode: str
    paused: bool = False
    counts: Mapping[str, int] = field(default_factory=dict)
    """The number of resources by verdict, state, stage or rule, depending on the stream."""
    oldest_ms: int | None = None
    """The age of the oldest difference in ms; None if there is no difference, or if the stream does not report it."""
    sources: Sequence[ObservationSource] = ()
    problems: Sequence[str] = ()
    """Problems other than the reasons in `not_ready`."""
    not_ready: Sequence[str] = ()
    """The reasons why the findings of the stream are not reliable."""
    query: str = ""
    """The name of the query whose progress shows that the Spark session is alive; empty if any query shows it."""
    silent_ms: int = 0
    """The longest interval between two progress reports of the stream's queries, in ms."""
    fields: StatusFields | None = None
    """The fields that the stream adds to the JSON of the status."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One difference from the declared state."""

    about: Row
    """The names of the resource by noun, such as {"ledger": 7}."""
    verdict: str
    rule: str
    reason: str
    since_ms: int | None
    stage: str = ""
    """The stage of the action on the resource; empty if there is no action."""
    more: Row = field(default_factory=dict)
    """Further fields of the JSON of the finding."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter of findings. A criterion that is None permits every finding."""

    verdict: str | None = None
    rule: str | None = None
    limit: int = 100
    namespace: str | None = None
    """A namespace, passed only to streams whose `Descriptor.selectors` contain ``namespace``."""
    bookie: str | None = None
    """A bookie, passed only to streams whose `Descriptor.selectors` contain ``bookie``."""


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One action."""

    id: str
    kind: str
    rule: str
    reason: str
    stage: str
    about: Row
    """The names of the resource by noun, such as {"ledger": 7}."""
    next_ms: int | None = None
    """The time of the next attempt in ms since the epoch; None if no time is set."""
    requirements: Row = field(default_factory=dict)
    """The preconditions that are checked when the action is executed."""
    evidence: Row = field(default_factory=dict)
    measured: Mapping[str, int | None] = field(default_factory=dict)
    """The numbers of copies and racks, for an action on a ledger."""


class LimitedRows(list[Row]):
    """Rows that a limit may have truncated: ``total`` is their number without the limit."""

    def __init__(self, rows: Iterable[Row], total: int) -> None:
        super().__init__(rows)
        self.total = total


class Stream(ABC):
    """One subject. Its methods are called from several threads and must not block for long.

    Its life cycle: creation, `load`, `watch`, `begin`; at the end `end`, while the queries stop, and then `close`.
    """

    name: str

    def load(self) -> None:
        """Load the state of earlier runs from the journal."""
        return

    def watch(self) -> None:
        """Start to observe; Spark is not running yet."""
        return

    def begin(self, spark: Session) -> None:  # noqa: ARG002 - for streams that have a query
        """Start queries and loops."""
        return

    def end(self) -> None:
        """Stop accepting input, so that queries finish their batch."""
        return

    def close(self) -> None:
        """Release the resources that the last batch needed."""
        return

    def progressed(self, query: str, progress: QueryProgress) -> None:  # noqa: ARG002 - see begin
        """Handle a progress report of Spark. Called for every query."""
        return

    def alive(self, query: str) -> None:  # noqa: ARG002 - see begin
        """Handle an event of a query that shows it is alive. Called for every query."""
        return

    @abstractmethod
    def status(self, now_ms: int) -> StreamStatus:
        """Its part of the status."""

    def rows(self, noun: str, query: RowQuery) -> list[Row]:
        """The rows of one of its nouns. ``query``: the parameters that the noun declares."""
        raise LookupError(f"the stream {self.name} lists no {noun}: {query}")

    def describe(self, noun: str, names: Names) -> Row | list[Row]:
        """The details of one resource, an object or rows. ``names``: the variables of its path. Raises `Refused`."""
        raise LookupError(f"the stream {self.name} describes no {noun}: {dict(names)}")

    def added(self, noun: str, described: Row) -> Row:  # noqa: ARG002 - for streams that add any
        """Fields that it adds to what another stream described."""
        return {}

    def execute(self, verb: str, names: Names, arguments: Row) -> Row | list[Row]:
        """Execute one of its verbs. ``names``: the variables of its path. Raises `Refused`."""
        raise LookupError(f"the stream {self.name} has no verb {verb}: {dict(names)}, {dict(arguments)}")

    def incomplete(self, noun: str) -> Sequence[str]:  # noqa: ARG002 - for streams whose rows may be incomplete
        """Reasons why the rows of this noun may be incomplete or outdated."""
        return ()

    def findings(self, filter_: Filter) -> tuple[Sequence[Finding], int]:  # noqa: ARG002 - for streams that have findings
        """Findings, the most urgent first, and their number without the limit."""
        return (), 0

    def grouped(self) -> Mapping[tuple[str, str], int]:
        """The number of findings by rule and verdict, the most frequent first."""
        findings, _ = self.findings(Filter(limit=EVERY_FINDING))
        return dict(Counter((finding.rule, finding.verdict) for finding in findings).most_common())

    def plan(self) -> list[PlanRow]:
        """Actions that are due, wait for approval or are in progress."""
        return []

    def approve(self, rows: Sequence[PlanRow]) -> Sequence[PlanRow]:
        """Approve these actions of its plan, which wait for approval; returns the approved ones. Raises `Retry`."""
        raise LookupError(f"the stream {self.name} approves no actions: {[row.id for row in rows]}")


def finding_json(finding: Finding) -> Row:
    """The JSON of a finding."""
    return {
        **finding.about,
        "verdict": finding.verdict,
        "rule": finding.rule,
        "reason": finding.reason,
        "since_ms": finding.since_ms,
        "stage": finding.stage,
        **finding.more,
        "about": _names(finding.about),
    }


def plan_json(row: PlanRow) -> Row:
    """The JSON of an action."""
    return {
        "id": row.id,
        "kind": row.kind,
        **dict.fromkeys(EVERY_ACTION),
        **row.about,
        "rule": row.rule,
        "reason": row.reason,
        "copies": None,
        "racks": None,
        **row.measured,
        "stage": row.stage,
        "about": _names(row.about),
        "next_ms": row.next_ms,
        "requirements": dict(row.requirements),
        "evidence": dict(row.evidence),
    }


def _names(about: Row) -> str:
    return " ".join(str(name) for name in about.values() if name not in (None, ""))


def source_json(source: ObservationSource) -> Row:
    """The JSON of a source."""
    return asdict(source)
