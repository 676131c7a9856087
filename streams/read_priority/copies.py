"""Checks the copies of ledgers in both tiers, a bounded number per pass, and remembers the results.

A ledger in BookKeeper is checked by its metadata and by one request to each of its bookies, a copy in tiered storage by
the ETags of its objects and, once, by reading them.
"""

import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from trueup.connectors.bookkeeper.deletion.presence import PresenceAnswer, presence
from trueup.connectors.bookkeeper.metadata import queries
from trueup.connectors.bookkeeper.metadata.addresses import Addresses
from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths
from trueup.connectors.pulsar.offload_verify import OffloadFacts, Tiered
from trueup.connectors.s3.store import NoAccess
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.state.bookkeeper.ledgers import MANY, Ledgers
from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.common.errors import Retry, Stop
from trueup.state.read_priority.copies import UNCHECKED, CopyCheck, CopyState, LedgerCopies, stored
from trueup.state.read_priority.tiers import LedgerInfo

ASK_S = 5.0
VERIFIED = 200_000
"""Maximum number of remembered results of read objects."""
ABSENT = CopyCheck(CopyState.ABSENT, "not offloaded", 1)
_ANSWERS = {PresenceAnswer.HELD: CopyState.WHOLE, PresenceAnswer.GONE: CopyState.GONE}


class LedgerToCheck(NamedTuple):
    """A closed ledger whose copies are checked."""

    name: str
    """The name of the topic, without the number of a partition."""
    part: str
    """The name of the topic or partition that lists the ledger."""
    owner: str
    """The name of the managed ledger that owns the ledger; for a shadow topic that of its source."""
    info: LedgerInfo

    @property
    def key(self) -> "_Key":
        """What its checks are remembered by: topics may list a ledger with different records of its copy."""
        return self.part, self.info.ledger


_Key = tuple[str, int]
_NEVER = UNCHECKED, UNCHECKED


class Cluster(Protocol):
    """The BookKeeper cluster; see `streams.bookkeeper.cluster.BookKeeper`."""

    @property
    def paths(self) -> BookKeeperPaths:
        """Paths of its znodes."""

    def session(self) -> ZooKeeperClient:
        """A session for queries. Raises `Retry`."""

    def read(self, ledgers: Sequence[int]) -> Ledgers:
        """Current rows of these ledgers, without those that do not exist. Raises `Retry`."""


Tls = Callable[[], ssl.SSLContext | None]
"""The context for connections to bookies, with the certificates of now. Raises `BadSettings`."""


class CopyChecker:
    """Used by one thread."""

    def __init__(self, cluster: Cluster, tiered: Tiered, tls: Tls, clock: Callable[[], int]) -> None:
        self._cluster, self._tiered, self._tls, self._clock = cluster, tiered, tls, clock
        self._known: dict[_Key, tuple[CopyCheck, CopyCheck]] = {}

    def check(
        self, ledgers: Sequence[LedgerToCheck], most: int, verify_bytes: int, first: Callable[[str], bool]
    ) -> None:
        """Check at most about ``most`` of these ledgers: those of the topics that come ``first``, then those that were
        checked longest ago. Forgets others. Objects that were not read yet are read until ``verify_bytes``. Raises
        `Retry` if ZooKeeper does not respond."""
        checks = {ledger.key: self._known.get(ledger.key, _NEVER) for ledger in ledgers}
        self._known = checks
        hot = [ledger for ledger in ledgers if first(ledger.name)]
        rest = sorted(
            (ledger for ledger in ledgers if not first(ledger.name)), key=lambda ledger: checks[ledger.key][0].at_ms
        )
        due = [*hot, *rest[: max(0, most - len(hot))]]
        for at in range(0, len(due), most):
            self._bookkeeper(due[at : at + most])
        left = verify_bytes
        for ledger in due:
            left -= self._offloaded(ledger, left)

    def of(self, ledgers: Iterable[LedgerToCheck]) -> tuple[LedgerCopies, ...]:
        """These ledgers with the results of their checks."""
        return tuple(LedgerCopies(ledger.part, ledger.info, *self._known.get(ledger.key, _NEVER)) for ledger in ledgers)

    def _bookkeeper(self, due: Sequence[LedgerToCheck]) -> None:
        ledgers = self._cluster.read(list(dict.fromkeys(subject.info.ledger for subject in due)))
        rows = {int(ledger): row for row, ledger in enumerate(ledgers.ledger)}
        there = {ledger: ledgers.ensembles(row) for ledger, row in rows.items()}
        client, paths = self._cluster.session(), self._cluster.paths
        asked = {ledger: sorted({b for members in some for b in members}) for ledger, some in there.items()}
        reasons: dict[tuple[int, str], str] = {}
        addresses = Addresses(client, paths)
        answers = presence(asked, addresses, ASK_S, reasons=reasons, tls=self._tls())
        seen = queries.registered(client, paths)
        registered, now_ms = {*seen.writable, *seen.readonly}, self._clock()
        for subject in due:
            ledger = subject.info.ledger
            if ledger not in rows:
                check = CopyCheck(CopyState.GONE, "no metadata", now_ms)
            elif ledgers.state[rows[ledger]] == LedgerState.UNREADABLE:
                check = CopyCheck(CopyState.UNKNOWN, "unreadable metadata", now_ms)
            else:
                states = {b: _state(answer, b in registered) for b, answer in answers[ledger].items()}
                entries = int(ledgers.entries[rows[ledger]])
                count = None if entries == MANY else entries
                worst = stored(there[ledger], int(ledgers.quorum[rows[ledger]]), states, count)
                check = CopyCheck(worst, _detail(ledger, states, reasons), now_ms)
            self._known[subject.key] = check, self._known[subject.key][1]

    def _offloaded(self, ledger: LedgerToCheck, left: int) -> int:
        """Check the copy in tiered storage; returns the bytes that were read."""
        copy, before = ledger.info.copy, self._known[ledger.key]
        if copy is None or not ledger.info.complete:
            self._known[ledger.key] = before[0], ABSENT._replace(at_ms=self._clock())
            return 0
        read = 0 if self._tiered.read(copy) else ledger.info.size
        if read > 0 >= left:
            return 0
        facts = OffloadFacts(ledger.owner, ledger.info.entries - 1, ledger.info.size)
        state, detail = CopyState.WHOLE, ""
        try:
            self._tiered.store(copy)
        except Stop as error:
            state, detail = CopyState.UNKNOWN, str(error)
        else:
            try:
                self._tiered.verify(copy, facts)
            except (Retry, NoAccess) as error:
                state, detail = CopyState.UNKNOWN, f"{error.found}; {error.todo}"
            except Stop as error:
                state = CopyState.GONE if error.found == "none" else CopyState.DAMAGED
                detail = f"expected {error.expected}; found {error.found}"
        self._known[ledger.key] = before[0], CopyCheck(state, detail, self._clock())
        return read


def _state(answer: PresenceAnswer, registered: bool) -> CopyState:
    silent = CopyState.UNKNOWN if registered else CopyState.DOWN
    return _ANSWERS.get(answer, silent)


def _detail(ledger: int, states: Mapping[str, CopyState], reasons: Mapping[tuple[int, str], str]) -> str:
    """The bookies that do not have it."""
    words = {CopyState.GONE: "does not have it", CopyState.DOWN: "is not registered"}
    return ", ".join(
        f"{bookie} {words.get(state) or reasons.get((ledger, bookie), 'does not respond')}"
        for bookie, state in sorted(states.items())
        if state is not CopyState.WHOLE
    )
