"""The fields of ledgers, marks and bookies in the status, and the health that they show."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from trueup.state.common.counts import many
from trueup.state.placement.policy.declared import policy_text
from trueup.state.placement.readiness import few
from trueup.state.placement.settings import PlacementSettings
from trueup.state.settings.settings import Settings
from trueup.streams.runtime.fields import StatusFields
from trueup.streams.runtime.format import age
from trueup.streams.runtime.signs import Signs, lost

STATUSES = ("writable", "readonly", "pending", "lost")


@dataclass(frozen=True, slots=True)
class MarkCounts:
    """Under-replication marks."""

    outstanding: int
    ours: int
    cap: int
    """The maximum number of outstanding marks."""
    idle_ms: int
    """The time for which no worker took any of the marks."""


@dataclass(frozen=True, slots=True)
class PlacementFields(StatusFields):
    """The placement stream in the status."""

    watches_ledgers: bool
    mode: str
    paused: bool
    damages: Mapping[str, int]
    """Replicas that readers reported, by state: reported, confirmed."""
    counts: Mapping[str, int]
    """Ledgers by verdict."""
    not_judged: int
    """Unknown ledgers whose current version is not judged yet."""
    ledgers: int
    oldest_drift_ms: int | None
    """The age of the oldest drift; None if no ledger is drifted."""
    waiting: Mapping[str, int]
    """Ledgers that are not marked yet, by what they wait for."""
    without_copies: int
    """Ledgers without a live copy of some entries."""
    marks: MarkCounts
    held: str
    """Why repairs of a mass loss wait; empty if they do not."""
    unbound: str
    """Why hold and approve do not bind BookKeeper's Auditor; empty if they do."""
    bookies: Mapping[str, Sequence[str]]
    """Names of bookies by status; empty if no bookies are observed."""
    policy: str
    """The placement policy by which ledgers are judged, and its settings."""

    @classmethod
    def absent(cls, settings: Settings) -> Self:
        """The fields without a BookKeeper cluster."""
        policy = settings.section(PlacementSettings)
        return cls(
            watches_ledgers=False,
            mode=policy.mode,
            paused=policy.paused,
            damages={"reported": 0, "confirmed": 0},
            counts={"true": 0, "drifted": 0, "blocked": 0, "unknown": 0},
            not_judged=0,
            ledgers=0,
            oldest_drift_ms=None,
            waiting={},
            without_copies=0,
            marks=MarkCounts(0, 0, 0, 0),
            held="",
            unbound="",
            bookies={},
            policy=policy_text(policy),
        )

    def signs(self) -> Signs:
        """The health of ledgers and bookies."""
        late = f", {self.not_judged:,} not judged yet" if self.not_judged else ""
        return Signs(
            well=f"{many(self.counts['true'], 'ledger')} true{late}" if self.watches_ledgers else "",
            blind=list(self._blind()),
            held=[self.held, *([self.unbound] if self.unbound else [])] if self.held else [],
            held_line="Held by Trueup; BookKeeper's Auditor is not bound"
            if self.unbound
            else "Held: a mass loss waits for an operator",
            attention=[*self._ledgers(), *lost(self.bookies.get("lost", []), "bookie"), *self._damages()],
            blinding=["zookeeper"],
            lines=list(self._lines()) if self.watches_ledgers else [],
        )

    def _blind(self) -> Iterator[str]:
        if self.counts["unknown"] == self.ledgers > self.not_judged:
            yield f"{many(self.ledgers, 'ledger')} unknown, which is all"

    def _ledgers(self) -> Iterator[str]:
        counts = self.counts
        if count := self.without_copies:
            yield f"{many(count, 'ledger')} without a live copy of some entries"
        if counts["drifted"]:
            oldest = self.oldest_drift_ms
            yield f"{many(counts['drifted'], 'ledger')} drifted" + (f", the oldest for {age(oldest)}" if oldest else "")
        if counts["blocked"]:
            yield f"{many(counts['blocked'], 'ledger')} blocked: no remedy exists now"
        unknown = counts["unknown"] - self.not_judged
        if 0 < unknown < self.ledgers:
            yield f"{many(unknown, 'ledger')} unknown: no verdict is possible"
        if not few(self.not_judged, self.ledgers):
            yield f"{self.not_judged:,} of {many(self.ledgers, 'ledger')} not judged yet"
        if self.unbound and self.mode != "observe":
            yield self.unbound

    def _damages(self) -> Iterator[str]:
        if count := self.damages["confirmed"]:
            yield f"{many(count, 'replica')} missing or damaged on bookies that respond"

    def _lines(self) -> Iterator[tuple[str, str]]:
        marks, bookies = self.marks, self.bookies
        late = f" ({self.not_judged:,} of them not judged yet)" if self.not_judged else ""
        yield "Ledgers", ", ".join(f"{count:,} {verdict}" for verdict, count in self.counts.items()) + late
        present = [f"{len(bookies[name]):,} {name}" for name in STATUSES if bookies.get(name)]
        yield "Bookies", ", ".join(present) or ("none" if bookies else "not observed yet")
        yield "Policy", self.policy
        yield "Auditor", self.unbound or "Trueup holds the vote: hold and approve bind BookKeeper"
        yield "Marks", f"{marks.outstanding:,} outstanding of {marks.cap:,} at most, {marks.ours:,} ours"

    def trends(self) -> Mapping[str, float]:
        """Ledgers that are not true, marks, and lost bookies."""
        wrong = {verdict: self.counts[verdict] for verdict in ("drifted", "blocked", "unknown")}
        lost = {"lost bookies": len(self.bookies["lost"])} if self.bookies else {}
        return {**wrong, "marks outstanding": self.marks.outstanding, **lost}
