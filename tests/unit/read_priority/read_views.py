"""Observations for tests of decisions."""

from collections.abc import Iterable

from trueup.state.deletion.offloads import ObjectPair, OffloadedCopy
from trueup.state.read_priority.copies import CopyCheck, CopyState, LedgerCopies
from trueup.state.read_priority.policies import BrokerFacts, PolicyView
from trueup.state.read_priority.settings import Declared, ReadPrioritySettings, declared_of
from trueup.state.read_priority.tiers import LedgerInfo, ReadPriority
from trueup.state.read_priority.view import NamespaceView, PriorityObservation, TopicView

FIRST, LAST = ReadPriority.BOOKKEEPER_FIRST, ReadPriority.TIERED_STORAGE_FIRST
NOW = 1_000_000
WHOLE, GONE, UNKNOWN, ABSENT = CopyState.WHOLE, CopyState.GONE, CopyState.UNKNOWN, CopyState.ABSENT
CHOSEN = ReadPrioritySettings(
    admin=["http://b"],
    mode="enforce",
    declared={"t/n": "tiered-storage-first"},
    stall_looks=2,
    settle_looks=2,
    settle_s=5.0,
)


def copies(
    number: int, bookkeeper: CopyState, tiered: CopyState, dropped: bool = False, at_ms: int = NOW
) -> LedgerCopies:
    copy = None if tiered is ABSENT else OffloadedCopy(ObjectPair("u", number), True)
    info = LedgerInfo(number, 10, 100, 1_000, copy, dropped, 1_000)
    return LedgerCopies("t/n/a", info, CopyCheck(bookkeeper, "b", at_ms), CopyCheck(tiered, "t", at_ms))


def topic(
    *ledgers: LedgerCopies, own: ReadPriority | None = None, present: bool = False, declared: Declared | None = None
) -> TopicView:
    policy = PolicyView(present or own is not None, own, None, "digest", "plain")
    found = declared or declared_of(CHOSEN.declared, "t/n", "a")
    return TopicView("t/n", "a", found, policy, None, ledgers)


def seen(
    topics: Iterable[TopicView],
    namespace: ReadPriority | None = LAST,
    at_ms: int = NOW,
    lag_ms: int | None = None,
    problem: str = "",
) -> PriorityObservation:
    declared = declared_of(CHOSEN.declared, "t/n")
    view = NamespaceView("t/n", declared, PolicyView(namespace is not None, namespace, None, "digest", "plain"))
    brokers = () if problem else (BrokerFacts("b", (4, 2, 4), LAST, lag_ms),)
    return PriorityObservation(at_ms, at_ms, brokers, {} if problem else {"t/n": view}, list(topics), problem)
