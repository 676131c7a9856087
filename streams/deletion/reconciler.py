"""The loop of deletion: creates deletions from the view's unreferenced ledgers, executes them, and has bookies confirm
them.

It tolerates a crash at any point. A deletion is on its topic before any action; the view reports unreferenced ledgers
again; ZooKeeper and the bookies show the results of actions.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from pyspark.sql import DataFrame

from trueup.state.common.errors import TrueupError
from trueup.state.common.rules import Verdict
from trueup.state.common.token_bucket import TokenBucket
from trueup.state.deletion.lifecycle import (
    ENDS,
    Deletion,
    DeletionEvent,
    DeletionEvidence,
    DeletionStage,
    advance,
    again,
    answered,
    due,
    observed,
    unconfirmed,
)
from trueup.state.deletion.orphan_objects import ORPHANS
from trueup.state.deletion.rules import DROPPED, LEAK_RULES
from trueup.state.deletion.settings import DeletionSettings
from trueup.state.deletion.verdicts import Rows
from trueup.state.deletion.view import Leaks, agreed, confirmed, departed, entered, settled
from trueup.streams.config.live import LiveSection
from trueup.streams.deletion.query import leaks_of
from trueup.streams.deletion.target import OUTCOMES, Check, DeletionResult, DeletionTarget, ready
from trueup.streams.deletion.topics import DELETIONS
from trueup.streams.journal.codec import ledger_key
from trueup.streams.journal.history import ITSELF, WHO, History
from trueup.streams.journal.history_row import HistoryRow
from trueup.streams.journal.journal import Journal
from trueup.streams.journal.topic import Record

log = logging.getLogger(__name__)
AT_ONCE = 500
BURST_MS = 1000.0  # burst of the rate limit, as a time at that rate
VERIFIED_AT_ONCE, VERIFYING_MS = 20, 5_000
"""Maximum number of offloaded ledgers that one reconcile verifies, and the maximum time."""
ASK_AGAIN_MS = 60_000
_OWNER_GONE, _MISSING = (LEAK_RULES.code(f"deletion.{rule}") for rule in ("owner-gone", "missing"))
ORDERED = (DeletionStage.DELETING, DeletionStage.GONE)


class UnreferencedLedger(NamedTuple):
    """A ledger that may be deleted, in the view: the leading fields of a `Deletion`."""

    ledger: int
    rule: str
    owner: str
    version: int
    ctime_ms: int
    length: int
    since_ms: int


class DeletionReconciler:
    """The view, the deletions, and their execution. Safe to use from several threads."""

    def __init__(
        self,
        target: DeletionTarget,
        journal: Journal,
        policy: LiveSection[DeletionSettings],
        first_epoch: Callable[[], int | None],
        counted: Callable[[str, int, float], None],
        clock: Callable[[], int],
        buckets: int,
        check: Check = ready,
        topic: str = DELETIONS,
        history: History | None = None,
        caught_up: Callable[[], bool] = lambda: True,
    ) -> None:
        self._caught_up = caught_up
        self._target, self._journal, self._policy = target, journal, policy
        self._first_epoch, self._counted, self._clock, self._buckets = first_epoch, counted, clock, buckets
        self._check, self._topic = check, topic
        self._acting = threading.RLock()
        self.lock = threading.RLock()
        self._answers: dict[int, Leaks] = {}
        self._view: Sequence[Leaks] = ()
        self._followed = False  # whether the view was complete before, so that an entry of a ledger is recognized
        self._departed = set[int]()  # ledgers that left the view since the deletions last agreed with it
        self._epochs: dict[int, int] = {}
        self._leaks: Mapping[int, UnreferencedLedger] | None = None
        self.deletions: dict[int, Deletion] = {}
        self.history = history or History()
        self.blocked_reason = "starting"
        self._sought, self._absent, self._unknown = set[str](), set[int](), frozenset[int]()
        self._ask_ms = 0
        self._doubted: set[int] = set()  # the journal's state of these is uncertain after a failed write
        self._tokens = TokenBucket(policy.current.deletes_per_s / 1000, BURST_MS, clock())

    def load(self) -> None:
        """Load the deletions of earlier runs."""
        self.deletions = {deletion.ledger: deletion for deletion in self._journal.newest(self._topic).values()}

    def batch(self, frame: DataFrame, _batch: int) -> None:
        """Sink of the deletion stream; idempotent."""
        for row in frame.toArrow().to_pylist():
            self.apply(*leaks_of(row))

    def apply(self, bucket: int, epoch: int, leaks: Leaks) -> None:
        """Apply the answer of one bucket; ``epoch`` -1: without a request."""
        with self.lock:
            self._answers[bucket], self._leaks = leaks, None
            self._epochs[bucket] = max(epoch, self._epochs.get(bucket, -1))
            before, view = self._view, agreed(list(self._answers.values()))
            if self._followed:
                view = entered(view, before, self._clock())
                self._departed |= departed(view, before)
            self._view = view

    def lose_view(self) -> None:
        """The view was lost: nothing is known until every bucket has reported again."""
        with self._acting, self.lock:
            self._answers, self._epochs, self._view, self._leaks = {}, {}, (), None
            self._followed, self._departed = False, set()
            self.blocked_reason = "the view is not complete yet"

    @property
    def complete(self) -> bool:
        """Whether every bucket has reported its state in this run, after everything that the journal held."""
        first = self._first_epoch()
        asked = first is not None and len(self._epochs) == self._buckets and min(self._epochs.values()) >= first
        return asked and self._caught_up()

    def view(self) -> Sequence[Leaks]:
        """The answers of all buckets. A missing ledger is included only after ``deletion.missing_s``, and after its
        absence was confirmed."""
        with self.lock:
            return [confirmed(part, self._absent) for part in self._all()]

    def _all(self) -> Sequence[Leaks]:
        before_ms = self._clock() - int(self._policy.current.missing_s * 1000)
        return [settled(part, before_ms) for part in self._view]

    def forgotten(self, ledger: int | None = None) -> Iterator[tuple[Rows, str, str]]:
        """All `LEAK` rows, or those of one ledger, with owner and cursor."""
        for part in self.view():
            yield from _named(part, part.rows if ledger is None else part.rows[part.rows["ledger"] == ledger])

    def reconcile(self) -> None:
        """Observe, and do what is due. A reason that blocks it is reported as ``blocked_reason``."""
        with self._acting:
            if not self.complete:
                self.blocked_reason = "the view is not complete yet"
                return
            with self.lock:
                self._followed = True
            before = self.blocked_reason
            try:
                self._doubt(self._clock())
                self.blocked_reason = self._target.blocked_reason()
                if self.blocked_reason:
                    return
                self._observe(self._clock())
                self._delete(self._clock())
                self._confirm(self._clock())
            except TrueupError as error:
                self.blocked_reason = str(error)
                if self.blocked_reason != before:
                    log.warning("deletions blocked", extra={"problem": self.blocked_reason})

    def _doubt(self, now_ms: int) -> None:
        """Have everything read that does not seem to exist: there are no events of what this identity may not read. A
        missing ledger is a finding only once this confirmed it."""
        with self.lock:
            rows = [(row["ledger"].item(), row["rule"].item(), owner) for row, owner, _ in self._unseen()]
        owners = {owner for _, rule, owner in rows if rule == _OWNER_GONE}
        self._target.seek(owners - self._sought)
        self._sought = owners
        missing = {ledger for ledger, rule, _ in rows if rule == _MISSING}
        unknown = frozenset(missing - self._absent)
        if unknown and (unknown != self._unknown or now_ms >= self._ask_ms):
            self._unknown, self._ask_ms = unknown, now_ms + ASK_AGAIN_MS
            absent = self._absent & missing | self._target.absent(sorted(unknown))
            with self.lock:
                self._absent, self._leaks = absent, None

    def _unseen(self) -> Iterator[tuple[Rows, str, str]]:
        """`LEAK` rows of what does not seem to exist, with owner and cursor."""
        for part in self._all():
            yield from _named(part, part.rows[np.isin(part.rows["rule"], (_OWNER_GONE, _MISSING))])

    def _observe(self, now_ms: int) -> None:
        """Apply the view to the deletions, and create new ones."""
        with self.lock:
            leaks, left = self._due(), frozenset(self._departed)
        if left:  # a reference in between counts although the ledger may be unreferenced again
            leaks = {ledger: leak for ledger, leak in leaks.items() if ledger not in left}
        policy = self._policy.current
        looked = sorted(m.ledger for m in self.deletions.values() if _unsure(m, m.ledger in leaks))
        there = self._target.find(looked) if looked else {}
        grace_ms, retry_ms = int(policy.grace_s * 1000), int(policy.retry_s * 1000)
        changed, resting = [], list[tuple[Deletion, Deletion]]()
        for ledger, deletion in self.deletions.items():
            leak = leaks.get(ledger)
            if leak is None and deletion.stage is DeletionStage.GONE:
                continue
            stale = deletion.stage in ORDERED and ledger not in there
            seen = (
                DeletionEvidence(ledger in there, "", there[ledger].version if ledger in there else -1)
                if leak is None or stale
                else DeletionEvidence(True, leak.rule, leak.version, leak.owner)
            )
            after = observed(deletion, seen, grace_ms, retry_ms, now_ms)
            if after.rule == DROPPED and after.stage is DeletionStage.MARKED is not deletion.stage:
                resting.append((deletion, after))
            elif after is not deletion:
                changed.append(after)
        changed += self._verified(resting, retry_ms, now_ms)
        if policy.mode != "observe":
            changed += self._begun(leaks, policy, now_ms)
        self._take(changed)
        with self.lock:
            self._departed -= left

    def _verified(
        self, resting: Iterable[tuple[Deletion, Deletion]], retry_ms: int, begun_ms: int
    ) -> Iterator[Deletion]:
        """Of deletions that depend on an offloaded ledger, those whose offload is verified now, and those whose offload
        is invalid. The others wait for the next reconcile."""
        for before, after in islice(resting, VERIFIED_AT_ONCE):
            (result,) = self._check([after])
            if result.result == "ready":
                yield after
            elif result.result != "gone":
                refused = advance(after, DeletionEvent.REFUSE, self._clock(), result.detail)
                yield again(refused._replace(attempts=before.attempts), self._clock(), retry_ms)
            if self._clock() - begun_ms > VERIFYING_MS:
                return

    def _due(self) -> Mapping[int, UnreferencedLedger]:
        """Ledgers that may be deleted, by id."""
        with self.lock:
            if self._leaks is None:
                self._leaks = {leak.ledger: leak for part in self.view() for leak in _drifted(part)}
            return self._leaks

    def _begun(self, leaks: Mapping[int, UnreferencedLedger], policy: DeletionSettings, now_ms: int) -> list[Deletion]:
        """New deletions of unreferenced ledgers that still exist, with all places that store them now."""
        room = min(AT_ONCE, policy.max_deletions - len(self.deletions))
        if room <= 0 or len(leaks.keys() - self.deletions.keys()) == 0:
            return []
        fresh = sorted((leak.since_ms, ledger) for ledger, leak in leaks.items() if ledger not in self.deletions)[:room]
        there = self._target.find(sorted(ledger for _, ledger in fresh))
        return [
            Deletion(**leak._asdict(), at_ms=now_ms, bookies=item.places, by=WHO.get())
            for ledger, item in there.items()
            if (leak := leaks[ledger]).version == item.version
        ]

    def _delete(self, now_ms: int) -> None:
        policy = self._policy.current
        if policy.paused or policy.mode == "observe":
            return
        deletions = due(self.deletions.values(), policy.mode, min(AT_ONCE, self._rate(policy, now_ms)), now_ms)
        if not deletions:
            return
        ordered = {m.ledger: advance(m, DeletionEvent.ORDER, now_ms) for m in deletions}
        self._take(ordered.values())
        self._tokens.take(len(ordered))
        results = self._target.delete(list(ordered.values()))
        self._take(self._became(ordered[result.ledger], result, int(policy.retry_s * 1000)) for result in results)

    def _became(self, deletion: Deletion, result: DeletionResult, retry_ms: int) -> Deletion:
        event, now_ms = OUTCOMES.get(result.result), self._clock()
        if event is None:
            return deletion._replace(detail=result.detail)
        after = advance(deletion, event, now_ms, result.detail)
        return after if event is DeletionEvent.DONE else again(after, now_ms, retry_ms)

    def _confirm(self, now_ms: int) -> None:
        asked = unconfirmed(self.deletions.values(), now_ms)[:AT_ONCE]
        if not asked:
            return
        held = self._target.held({m.ledger: m.pending for m in asked})
        first_ms, changed = int(self._policy.current.confirm_s * 1000), []
        for deletion in asked:
            left = held[deletion.ledger]
            detail = "; ".join(f"{bookie}: {what}" for bookie, what in left.items())
            changed.append(answered(deletion, left, self._clock(), first_ms, detail))
        self._take(changed)

    def _rate(self, policy: DeletionSettings, now_ms: int) -> int:
        self._tokens.limit(policy.deletes_per_s / 1000)
        return int(self._tokens.room(now_ms))

    def approve(self, ledgers: Sequence[int]) -> list[int]:
        """Approve the deletions of these ledgers that are marked; returns the approved ones."""
        with self._acting:
            marked = [self.deletions[i] for i in ledgers if i in self.deletions]
            approved = [deletion for deletion in marked if deletion.stage is DeletionStage.MARKED]
            self._take([deletion._replace(approved=True, by=WHO.get()) for deletion in approved])
            return [deletion.ledger for deletion in approved]

    def _take(self, changed: Iterable[Deletion]) -> None:
        """Write these to the journal, then apply them. Raises `Retry` and applies none; what the journal accepted of
        them is corrected by the next write."""
        deletions = {deletion.ledger: deletion for deletion in changed}
        doubted = {ledger: self.deletions.get(ledger) for ledger in self._doubted}
        if not deletions and not doubted:
            return
        self._doubted |= deletions.keys()
        self._journal.put(
            [(self._topic, *_record(ledger, deletion)) for ledger, deletion in {**doubted, **deletions}.items()]
        )
        self._doubted = set()
        with self.lock:
            for deletion in deletions.values():
                self._report(deletion)
                if deletion.stage in ENDS:
                    self.deletions.pop(deletion.ledger, None)
                else:
                    self.deletions[deletion.ledger] = deletion

    def _report(self, deletion: Deletion) -> None:
        before = self.deletions.get(deletion.ledger)
        if before is not None and before.stage is deletion.stage:
            return
        self.history.add(entry(deletion))
        since_ms = before.at_ms if before is not None else deletion.at_ms
        self._counted(deletion.stage, deletion.length, (deletion.at_ms - since_ms) / 1000)

    def counts(self) -> Counter[str]:
        """Deletions by stage."""
        with self.lock:
            return Counter(deletion.stage.value for deletion in self.deletions.values())


def _named(part: Leaks, rows: Rows) -> Iterator[tuple[Rows, str, str]]:
    for row in rows:
        yield row, part.names[row["owner"]], part.names[row["name"]]


def _unsure(deletion: Deletion, unreferenced: bool) -> bool:
    """Whether a deletion's ledger must be read: the view may still contain it after its deletion, and a ledger that the
    view no longer contains may be deleted or in use."""
    return (
        unreferenced
        if deletion.stage is DeletionStage.GONE
        else not unreferenced or deletion.stage is DeletionStage.DELETING
    )


def _drifted(part: Leaks) -> Iterator[UnreferencedLedger]:
    rows = part.rows[part.rows["verdict"] == Verdict.DRIFTED]
    columns = (rows[name].tolist() for name in ("ledger", "rule", "owner", "version", "ctime_ms", "length", "since_ms"))
    for ledger, rule, owner, *numbers in zip(*columns, strict=True):
        yield UnreferencedLedger(ledger, LEAK_RULES[rule].id, part.names[owner], *numbers)


def entry(deletion: Deletion) -> HistoryRow:
    """A deletion as a row of the history."""
    return HistoryRow(
        deletion.at_ms,
        action_id(deletion),
        "deletion",
        deletion.stage.value,
        deletion.ledger,
        rule=deletion.rule,
        detail=deletion.detail,
        who=ITSELF,
    )


def action_id(deletion: Deletion) -> str:
    """Name of the action that deletes a version of a ledger, or unreferenced objects."""
    return action_name(deletion.ledger, deletion.version, deletion.rule)


def action_name(ledger: int, version: int, rule: str) -> str:
    """The same name, from the identity of the ledger or objects."""
    return f"delete-objects-{ledger}" if rule in ORPHANS else f"delete-{ledger}-v{version}"


def _record(ledger: int, deletion: Deletion | None) -> tuple[bytes, object]:
    if deletion is None or deletion.stage in ENDS:
        return ledger_key(ledger), None
    return ledger_key(ledger), {**deletion._asdict(), "stage": deletion.stage.value}


def deletion_of(value: Record) -> Deletion:
    """The inverse of `_record`."""
    lists = {name: tuple(value[name]) for name in ("bookies", "pending")}
    return Deletion(**{**value, **lists, "stage": DeletionStage(value["stage"])})
