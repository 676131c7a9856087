"""Holds the Auditor role, so that BookKeeper's own Auditor is inactive while its workers continue.

The process with the lowest vote is the Auditor (ZkLedgerAuditorManager); all others wait for their predecessor's vote
to disappear. Trueup's vote is ephemeral: when this process or its session ends, BookKeeper takes over by itself. The
Auditor has further duties: it provides ``lostBookieRecoveryDelay``, treats a write to it as a request to audit now
(used by ``triggeraudit`` and ``decommissionbookie``), and honours ``disable``.
"""

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from trueup.connectors.bookkeeper.metadata import mark_codec, queries
from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths
from trueup.connectors.bookkeeper.metadata.metadata import valid_bookie
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.connectors.zookeeper.errors import NodeExists, NoNode, unread
from trueup.connectors.zookeeper.follower import Watcher
from trueup.connectors.zookeeper.watch import NodeWatch
from trueup.state.common.errors import BadSettings, Retry, TrueupError

log = logging.getLogger(__name__)
_PREFIX = "V_"
_VOTE = re.compile(rb"V_-?[0-9]{1,10}\Z")
_DELAY = re.compile(rb"\s*[+]?0*([0-9]{1,10})\s*\Z")
_LONGEST_S = 2**31 - 1  # BookKeeper reads an int
_SHOWN = 32
_IDLE_S = 5.0
_HIDDEN = "hidden votes"


class AuditorState(Enum):
    """Which process is the Auditor."""

    OURS = "ours"
    OTHER = "other"
    WAITING = "waiting"  # no session, or not voted yet


@dataclass(frozen=True, slots=True)
class Holder:
    """The owner of the lowest vote at the last read."""

    role: AuditorState
    bookie: str = ""
    """The bookie id of the owner; empty while the role is WAITING."""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class AuditorOrders:
    """Requests of operators to the Auditor through ZooKeeper."""

    delay_s: int
    """The delay in seconds before a single lost bookie is repaired."""
    audit: bool
    """Whether to audit immediately, without the delay."""
    disabled: bool
    """Whether replication is disabled."""


class Vote(Watcher):
    """Votes until it is closed; votes again after the loss of a session.

    ``on_change`` is called with the `AuditorOrders` initially and after each change, on the vote's thread; it must not
    block for long. It is called with ``audit`` after every write to the delay znode, as the Auditor reacts to a write
    of the same value or 0. ``delay_s`` is written if no delay is set.
    """

    def __init__(
        self,
        connect: Callable[[], ZooKeeperClient],
        root: str,
        name: str,
        on_change: Callable[[AuditorOrders], None],
        delay_s: int = 0,
    ) -> None:
        if not valid_bookie(name):
            raise BadSettings([f"name of the Auditor vote: {name!r}: expected letters, digits, '-', '_', '.' or ':'"])
        super().__init__("vote", connect, NodeWatch((), lambda: 0))
        self._paths, self._bookie = BookKeeperPaths(root), name
        self._on_change, self._delay_s = on_change, delay_s
        self._orders: AuditorOrders | None = None
        self._delay_zxid = -1
        self._problems: dict[str, str] = {}
        self._holder = Holder(AuditorState.WAITING)
        self._own = b""

    def holder(self) -> Holder:
        """The current Auditor."""
        return self._holder

    @property
    def session(self) -> int:
        """The session of the vote, 0 if there is none."""
        client = self._client
        return client.session if client is not None else 0

    def owns(self, ballot: queries.Ballot) -> bool:
        """Whether this is the vote of this session. One that may not be read is recognised by its name."""
        return ballot.name == self._own if ballot.session is None else ballot.session == self.session

    def problems(self) -> list[str]:
        """The errors in votes and requests; the valid ones remain in force."""
        return list(self._problems.values())

    def orders(self) -> AuditorOrders | None:
        """The current requests (``audit`` is never set), None before they were read."""
        return self._orders

    def close(self) -> None:
        """Withdraw the vote and end the session: the next voter takes over immediately."""
        super().close()  # the vote is removed with its session
        self._holder = Holder(AuditorState.WAITING)

    def _waits(self, error: TrueupError | None) -> None:
        if error is None:
            return
        if str(error) != self._holder.problem:
            log.warning("vote for the Auditor interrupted", extra={"problem": str(error)})
        self._holder = Holder(AuditorState.WAITING, problem=str(error))

    def _step(self) -> None:
        client = self._session()
        losses = self._watch.losses()
        if not self._watch.armed:
            self._prepare(client)
            client.add_watch(self._paths.election)
            client.add_watch(self._paths.delay)
            client.add_watch(self._paths.disable)
        self._watch.take()
        self._read_orders(client)
        self._look(client)
        if not self._watch.armed and not self._watch.arm(losses):
            raise Retry("an unbroken connection", "a lost connection", "voting again")
        self._watch.wake.wait(_IDLE_S)
        self._watch.wake.clear()

    def _prepare(self, client: ZooKeeperClient) -> None:
        """Create the znodes that the Auditor would create."""
        for path in (self._paths.replication, self._paths.election):
            if not client.present(path):
                _make(client, path)
        if not client.present(self._paths.delay):
            self._make_delay(client)

    def _look(self, client: ZooKeeperClient) -> None:
        """Find the Auditor, and vote if this session has no vote. Raises `Forbidden` if the lowest vote may not be
        read: then the Auditor is not known."""
        votes = self._votes(client)
        if not any(map(self.owns, votes)):
            path = f"{self._paths.election}/{_PREFIX}"
            vote = client.make(path, mark_codec.vote(self._bookie), ephemeral=True, sequence=True)
            self._own = vote.rpartition("/")[2].encode()
            votes = self._votes(client)
        if not votes:
            raise Retry("a vote for the Auditor", "none", "voting again")
        if votes[0].session is None:
            raise unread("the lowest vote for the Auditor", [f"{self._paths.election}/{votes[0].name.decode()}"])
        if not self.owns(votes[0]):
            self._holder = Holder(AuditorState.OTHER, votes[0].bookie)
        elif self._holder.role is not AuditorState.OURS:
            # BookKeeper's Auditor also writes this, and BookKeeper's shell shows it.
            client.put(self._paths.election, mark_codec.vote(self._bookie), -1)
            self._holder = Holder(AuditorState.OURS, self._bookie)

    def _votes(self, client: ZooKeeperClient) -> list[queries.Ballot]:
        """All votes, lowest first."""
        listed = client.listing(self._paths.election)[0]
        names = [name for name in listed if _VOTE.match(name)]
        invalid = next((name for name in listed if name.startswith(_PREFIX.encode()) and name not in names), None)
        self._note(self._paths.election, invalid, "a vote with a sequence number of ZooKeeper", "delete it")
        names.sort(key=lambda name: int(name[len(_PREFIX) :]))
        votes = queries.votes(client, self._paths, names)
        self._note_hidden([f"{self._paths.election}/{vote.name.decode()}" for vote in votes if vote.session is None])
        return votes

    def _read_orders(self, client: ZooKeeperClient) -> None:
        """Read delay and switch; report changes."""
        znode = client.look(self._paths.delay)
        if znode is None:
            self._make_delay(client)
            raise Retry(f"{self._paths.delay}", "nothing", "it was created; reading it again")
        disabled = client.present(self._paths.disable)
        delay_s = self._delay_of(znode[0])
        before, written = self._orders, znode[1].mzxid != self._delay_zxid
        audit = before is not None and written and delay_s in (0, before.delay_s)
        orders = AuditorOrders(delay_s, False, disabled)
        if audit or orders != before:
            self._on_change(replace(orders, audit=audit))
        self._orders, self._delay_zxid = orders, znode[1].mzxid

    def _delay_of(self, data: bytes) -> int:
        """The delay in seconds; invalid content counts as the delay that this vote would write."""
        match = _DELAY.match(data)
        usable = match is not None and int(match[1]) <= _LONGEST_S
        todo = "set it with `bookkeeper shell lostbookierecoverydelay -s`"
        self._note(self._paths.delay, None if usable else data, f"0 to {_LONGEST_S} seconds", todo)
        return int(match[1]) if match and usable else self._delay_s

    def _note(self, path: str, invalid: bytes | None, expected: str, todo: str) -> None:
        """Record the problem of a znode; None: there is none."""
        if invalid is None:
            self._problems.pop(path, None)
        else:
            self._problems[path] = f"expected {expected} at {path}; found {invalid[:_SHOWN]!r}; {todo}"

    def _note_hidden(self, paths: list[str]) -> None:
        if paths:
            self._problems[_HIDDEN] = str(unread("votes for the Auditor", paths))
        else:
            self._problems.pop(_HIDDEN, None)

    def _make_delay(self, client: ZooKeeperClient) -> None:
        """Create the delay znode; it is open to all clients, whatever else is protected."""
        _make(client, self._paths.delay, str(self._delay_s).encode(), public=True)


def _make(client: ZooKeeperClient, path: str, data: bytes = b"", *, public: bool = False) -> None:
    try:
        client.make(path, data, public=public)
    except NodeExists:
        return
    except NoNode as error:
        raise Retry(f"the parent of {path}", "none", "BookKeeper is not formatted yet") from error
