"""Replicas that readers reported as damaged: remembers reports, reads the replicas itself, and makes findings.

Reports come from any client of the API. They are bounded, and their only effect is that Trueup reads a few entries from
a bookie that the metadata of the ledger name.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np

from trueup.state.bookkeeper.ledgers import Column
from trueup.state.common.errors import Refused, TrueupError
from trueup.state.placement.damage import ReplicaDamage, ReplicaRange, ReplicaRead, crowded_out
from trueup.streams.bookkeeper.selection import LedgerSelection
from trueup.streams.journal.journal import Journal
from trueup.streams.journal.topic import Record, ledger_of
from trueup.streams.placement.metrics import PlacementMetrics
from trueup.streams.placement.topics import DAMAGES, REPLICA, damage_key
from trueup.streams.rows import Row
from trueup.streams.runtime.stream import Filter, Finding

log = logging.getLogger(__name__)
AT_ONCE = 4
"""Replicas that one pass reads: a bookie that does not respond takes seconds."""
REPORT_S = 5.0
"""Time within which the journal must accept a report."""
_NO_LEDGER = {"copies": None, "racks": None, "version": None, "fragment": None, "marked": False, "held": False}
"""Fields of a finding about a whole ledger."""


class ReplicaReader(Protocol):
    """See `streams.bookkeeper.cluster.BookKeeper`."""

    def replica(self, replica: ReplicaRange) -> ReplicaRead:
        """Read entries from one bookie. Raises `Refused` if it should not hold them, and other errors."""

    def select(self, ledgers: Column, where: LedgerSelection) -> Column:
        """Those of these ledgers that match."""


class DamageReports:
    """Safe to use from several threads; `reconcile` by one."""

    def __init__(
        self, cluster: ReplicaReader, journal: Journal, metrics: PlacementMetrics, clock: Callable[[], int]
    ) -> None:
        self._cluster, self._journal, self._metrics, self._clock = cluster, journal, metrics, clock
        # Reports wait for the journal under `_writing`. `_lock` is held only briefly, so readers do not wait.
        self._writing, self._lock = threading.Lock(), threading.Lock()
        self._known: dict[ReplicaRange, ReplicaDamage] = {}

    def load(self) -> None:
        """Load the reports of earlier runs. Each replica is read again before its damage is confirmed."""
        self._known = {damage.replica: damage for damage in self._journal.newest(DAMAGES).values()}

    def report(self, replicas: Iterable[tuple[ReplicaRange, bool]], reporter: str) -> int:
        """Remember reported replicas; returns the number of new ones. Raises `Retry` if the journal does not accept
        them."""
        now_ms = self._clock()
        with self._writing:
            earlier = {damage.replica: damage for damage in self._all()}
            fresh = {
                replica: ReplicaDamage(replica, missing, reporter, now_ms)
                for replica, missing in replicas
                if replica not in earlier
            }
            dropped = crowded_out([*earlier.values(), *fresh.values()])
            records = [(DAMAGES, damage_key(replica._asdict()), _record(damage)) for replica, damage in fresh.items()]
            self._journal.put(
                [*records, *((DAMAGES, damage_key(damage.replica._asdict()), None) for damage in dropped)], REPORT_S
            )
            with self._lock:
                self._known |= fresh
                for excess in dropped:
                    self._known.pop(excess.replica, None)
        self._metrics.damage("reported", len(fresh))
        self._metrics.damage("dropped", len(dropped))
        return len(fresh)

    def reconcile(self) -> None:
        """Read some replicas that are due, those without a read first. Raises `Retry` if the journal does not accept
        writes."""
        now_ms = self._clock()
        with self._lock:
            due = sorted(
                (damage for damage in self._known.values() if damage.due(now_ms)), key=lambda damage: damage.checked_ms
            )
        for before in due[:AT_ONCE]:
            self._check(before)

    def _check(self, before: ReplicaDamage) -> None:
        checked = before._replace(checked_ms=self._clock())
        try:
            reading = self._cluster.replica(before.replica)
        except Refused as error:
            self._forget(before, str(error))
        except TrueupError as error:
            self._keep(checked._replace(detail=str(error)))
        else:
            if reading.whole:
                self._forget(before, reading.detail)
                return
            self._keep(checked._replace(confirmed=True, detail=reading.detail))
            if not before.confirmed:
                self._metrics.damage("confirmed")
                log.warning("damaged replica", extra={**before.replica._asdict(), "found": reading.detail})

    def _keep(self, damage: ReplicaDamage) -> None:
        with self._lock:
            if damage.replica in self._known:
                self._known[damage.replica] = damage

    def _forget(self, damage: ReplicaDamage, why: str) -> None:
        self._journal.put([(DAMAGES, damage_key(damage.replica._asdict()), None)])
        with self._lock:
            self._known.pop(damage.replica, None)
        self._metrics.damage("repaired" if damage.confirmed else "refuted")
        log.info("replica not damaged", extra={**damage.replica._asdict(), "found": why})

    def counts(self) -> dict[str, int]:
        """Replicas by state: reported, or confirmed by a read of Trueup."""
        damages = self._all()
        confirmed = sum(damage.confirmed for damage in damages)
        return {"reported": len(damages) - confirmed, "confirmed": confirmed}

    def findings(self, filter_: Filter, confirmed: bool) -> list[Finding]:
        """The findings about confirmed or about other replicas, the oldest first. Their bookie is the one of the
        replica."""
        damages = [
            damage
            for damage in self._all()
            if damage.confirmed is confirmed and filter_.bookie in (None, damage.replica.bookie)
        ]
        if filter_.namespace is not None and damages:
            ledgers = np.array([damage.replica.ledger for damage in damages], np.int64)
            within = {*self._cluster.select(ledgers, LedgerSelection(namespace=filter_.namespace)).tolist()}
            damages = [damage for damage in damages if damage.replica.ledger in within]
        findings = map(_finding, sorted(damages, key=lambda damage: damage.at_ms))
        return [f for f in findings if filter_.verdict in (None, f.verdict) and filter_.rule in (None, f.rule)]

    def of(self, ledger: int) -> list[Row]:
        """The reported replicas of a ledger."""
        return [_row(damage) for damage in self._all() if damage.replica.ledger == ledger]

    def _all(self) -> Sequence[ReplicaDamage]:
        with self._lock:
            return list(self._known.values())


def _finding(damage: ReplicaDamage) -> Finding:
    replica, kind = damage.replica, "missing" if damage.missing else "with a wrong digest"
    reason = f"entries {replica.first} to {replica.last} {kind} on {replica.bookie}; {' '.join(_reasons(damage))}"
    about = {"ledger": replica.ledger, "bookie": replica.bookie}
    more = {**_NO_LEDGER, **_row(damage)}
    return Finding(about, damage.rule.verdict.name.lower(), damage.rule.id, reason, damage.at_ms, more=more)


def _reasons(damage: ReplicaDamage) -> Iterator[str]:
    yield damage.detail or "not read by Trueup yet;"
    yield f"reported by {damage.reporter}"


def _row(damage: ReplicaDamage) -> Row:
    return {
        **damage.replica._asdict(),
        "found": "missing" if damage.missing else "digest",
        "confirmed": damage.confirmed,
        "reporter": damage.reporter,
        "at_ms": damage.at_ms,
        "checked_ms": damage.checked_ms,
        "detail": damage.detail,
    }


def _record(damage: ReplicaDamage) -> dict[str, object]:
    return {**damage.replica._asdict(), "missing": damage.missing, "reporter": damage.reporter, "at_ms": damage.at_ms}


def damage_of(record: Record) -> ReplicaDamage:
    """The inverse of `_record`. Raises `OverflowError` for an id that is none."""
    ledger_of(record)
    return ReplicaDamage(
        ReplicaRange(*(record[name] for name in REPLICA)), *(record[name] for name in ("missing", "reporter", "at_ms"))
    )
