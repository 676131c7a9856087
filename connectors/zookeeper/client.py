"""A ZooKeeper session: kazoo's (reconnects, SASL) with TLS, recursive watches, bulk reads and Trueup's errors.

`look`, `present`, `listing`, `make`, `put`, `drop`, `commit` and the bulk requests raise `state.common.errors` and the
errors of `connectors.zookeeper.errors`; kazoo's own methods are also available, and raise kazoo's errors.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import EXCEPTIONS
from kazoo.protocol.connection import PURESASL_AVAILABLE
from kazoo.protocol.serialization import Create, Delete, GetACL, SetData, Sync
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import OPEN_ACL_UNSAFE

from trueup.connectors.zookeeper import requests
from trueup.connectors.zookeeper.connection import Sink, ZooKeeperConnection, fail_unsent
from trueup.connectors.zookeeper.errors import FORBIDDEN, GONE, Forbidden, NoNode, NotSent, TooOld, translated
from trueup.connectors.zookeeper.fence import Fence
from trueup.connectors.zookeeper.requests import Stat, Znodes, ZooKeeperRequest, check, deletion, writing
from trueup.connectors.zookeeper.security import PATH, TlsHandler, remedy, shared
from trueup.state.common.errors import BadSettings, Retry, Stop, TrueupError

log = logging.getLogger(__name__)


class NodeEvent(IntEnum):
    """Kind of a watch event (org.apache.zookeeper.Watcher.Event.EventType)."""

    CREATED = 1
    DELETED = 2
    DATA = 3
    CHILDREN = 4


@dataclass(frozen=True, slots=True)
class Pace:
    """The load on a server.

    The default reads about 280,000 znodes/s. Batches of 250 znodes, one request in flight and a pause of 4 ms read
    about 50,000 znodes/s without a visible effect on clients.
    """

    batch: int = 250
    """The number of znodes per request."""
    window: int = 2
    """The number of requests in flight."""
    pause_s: float = 0.0
    """Seconds between requests."""


@dataclass(frozen=True, slots=True)
class CommittedNode:
    """The response to a transaction."""

    codes: list[int | None]
    """The error code of each operation. None: done; 0: rolled back because another operation failed."""
    zxid: int
    """The zxid in the header of the response."""


FAST = Pace()
GENTLE = Pace(250, 1, 0.004)
RECONNECT_MAX_S = 3.0
ANSWER_S = 30.0
_LOOK_S = 0.1


class ZooKeeperClient(KazooClient):  # type: ignore[misc]
    """One session. ``options``: the options of kazoo (timeout in s; others by `security.options_of`). ``tree``: the
    path of a znode; znodes that this client creates below it have the permissions of its ACL, see `security.shared`.
    The client needs an identity for this.

    ``sink`` is called on the connection's thread with every watch event, in the order of zxids and several at once, as
    (zxid, kind, path), and must not block. The zxid is -1 on servers older than 3.9.
    """

    _connection: Any
    default_acl: Any

    def __init__(self, hosts: str, *, sink: Sink | None = None, tree: str = "", **options: Any) -> None:
        if "/" in hosts:
            raise BadSettings([f"ZooKeeper servers: {hosts!r}: expected host:port[,host:port...] without a path"])
        if options.get("sasl_options") and not PURESASL_AVAILABLE:
            raise BadSettings(
                ["ZooKeeper authentication: sasl: expected the package pure-sasl, which is not installed"]
            )
        options.setdefault("connection_retry", KazooRetry(max_tries=-1, delay=0.05, max_delay=RECONNECT_MAX_S))
        with translated("building the ZooKeeper client"):
            super().__init__(hosts, **options)
        plain = self._connection
        self._connection = ZooKeeperConnection(
            self, plain.retry_sleeper, logger=self.logger, sasl_options=plain.sasl_options
        )
        self.sink = sink
        self.fence: Fence | None = None
        """Checked by every transaction and deletion."""
        self.default_acl = self.default_acl or OPEN_ACL_UNSAFE
        self._tree, self._below = tree, tuple[Any, ...]()
        self._bulk = True

    def _notify_pending(self, state: Any) -> None:
        if state != KeeperState.AUTH_FAILED:
            fail_unsent(self._queue)
        super()._notify_pending(state)

    def open(
        self, wait_s: float = 15.0, after_zxid: int = 0, given_up: Callable[[], bool] = lambda: False
    ) -> "ZooKeeperClient":
        """Start the session. Raises `Retry` if no server answers in time, `Stop` if the server refuses the client.

        ``after_zxid``: accept only a server that has applied this zxid. ``given_up`` ends the wait early.
        """
        self.last_zxid = after_zxid
        refused: list[Any] = []
        self.add_listener(lambda _: refused.append(self._state) if self._state == KeeperState.AUTH_FAILED else None)
        self.start_async()
        until = time.monotonic() + wait_s
        while time.monotonic() < until and not refused and not given_up():
            if self._connection.ready.wait(_LOOK_S):
                return self
        self.shut()
        if refused:
            raise Stop("valid ZooKeeper credentials", "AUTH_FAILED", f"correct {PATH}.sasl.password or sasl.username")
        trouble, tls = self._connection.trouble, isinstance(self.handler, TlsHandler)
        hosts = ",".join(f"{host}:{port}" for host, port in self.hosts)
        reason = f"no session: {trouble}" if trouble else "no session"
        todo = remedy(trouble, tls) or "check that it runs; retrying"
        raise Retry(f"ZooKeeper at {hosts} to answer in {wait_s:g} s", reason, todo)

    def shut(self) -> None:
        """End the session: its ephemeral znodes and watches are removed at once if the server can be reached."""
        with translated("closing the session"):
            self.stop()
            self.close()

    @property
    def ended(self) -> bool:
        """Whether this client was closed or refused; it reconnects by itself in any other case."""
        return self.state == KazooState.LOST and self._state in (KeeperState.CLOSED, KeeperState.AUTH_FAILED)

    @property
    def session(self) -> int:
        """Session id, 0 when there is none."""
        return int(self._session_id or 0)

    def ask(self, request: Any, doing: str, writing: bool = False) -> Any:
        """Send one request and wait for the response."""
        return self._await(self.send(request), doing, writing)

    def send(self, request: Any) -> Any:
        """Send one request and return kazoo's asynchronous result. Fails immediately without a connection."""
        result = self.handler.async_result()
        if self.connected:
            self._call(request, result)
        else:
            result.set_exception(NotSent())
        return result

    def _await(self, result: Any, doing: str, writing: bool = False) -> Any:
        with translated(doing, writing):
            return result.get(timeout=ANSWER_S)

    def pipelined(self, asked: Iterable[ZooKeeperRequest], pace: Pace, doing: str) -> Iterator[Any]:
        """The responses to these requests in order, with ``pace.window`` of them in flight."""
        waiting: deque[Any] = deque()
        for request in asked:
            waiting.append(self.send(request))
            if len(waiting) >= pace.window:
                yield self._await(waiting.popleft(), doing)
                if pace.pause_s:
                    time.sleep(pace.pause_s)
        while waiting:
            yield self._await(waiting.popleft(), doing)

    def add_watch(self, path: str) -> int:
        """Watch everything at and below ``path``. From the returned zxid on, ``sink`` receives every write.

        The watch ends with the connection, not only with the session: add it again after every reconnect.
        """
        return int(self.ask(requests.AddWatch(path), f"watching {path}"))

    def settle(self, path: str) -> None:
        """Wait until this server has applied everything that its leader had (sync)."""
        self.ask(Sync(path), f"syncing {path}")

    def multi_read(self, parent: str, names: Sequence[bytes], pace: Pace = FAST) -> Iterator[Znodes]:
        """Data and stat of ``parent/name`` for all names, one `Znodes` per batch. Names may have several levels.

        Servers older than 3.6 close the session in response; the client uses single reads from then on.
        """
        doing, root = f"reading below {parent}", parent.encode()
        if not self._bulk:
            yield from self._single_reads(parent, names, pace, doing)
            return
        pieces = (names[at : at + pace.batch] for at in range(0, len(names), pace.batch))
        try:
            yield from self.pipelined((requests.MultiRead(root, piece) for piece in pieces), pace, doing)
        except TooOld as error:
            self._bulk = False
            raise Retry("multi reads (ZooKeeper 3.6)", "an older ZooKeeper", "single reads are used instead") from error

    def _single_reads(self, parent: str, names: Sequence[bytes], pace: Pace, doing: str) -> Iterator[Znodes]:
        for at in range(0, len(names), pace.batch):
            sent = [self.send(requests.GetData(f"{parent}/{n.decode()}")) for n in names[at : at + pace.batch]]
            for result in sent:
                try:
                    yield self._await(result, doing)
                except NoNode:
                    yield requests.missing(GONE, self.last_zxid)
                except Forbidden:
                    yield requests.missing(FORBIDDEN, self.last_zxid)
            time.sleep(pace.pause_s)

    def set_watches(
        self, since: int, data: Sequence[bytes], children: Sequence[bytes] = (), pace: Pace = Pace(1500, 2)
    ) -> None:
        """Compare these znodes with zxid ``since`` on the server; ``sink`` gets the differences before this returns.

        Leaves a one-shot watch on all others: use a separate session and close it.
        """
        step = pace.batch
        asked = [requests.SetWatches(since, data[at : at + step]) for at in range(0, len(data), step)]
        asked += [requests.SetWatches(since, (), children[at : at + step]) for at in range(0, len(children), step)]
        for _ in self.pipelined(asked, pace, "comparing znodes"):
            pass

    def listing(self, path: str) -> tuple[list[bytes], int]:
        """Names of the children of a znode, and the zxid of that list. Raises `NoNode`."""
        names, zxid = self.ask(requests.GetChildren(path), f"listing {path}")
        return names, zxid

    def listings(self, paths: Sequence[str]) -> tuple[list[list[bytes]], int]:
        """Names of the children of each znode at one zxid (none if it does not exist), and that zxid. Raises
        `Forbidden`, which names the znode."""
        try:
            lists, zxid = self.ask(requests.Listings(paths), f"listing {', '.join(paths[:3])}")
        except Forbidden:
            for path in paths:
                with suppress(NoNode):
                    self.listing(path)
            raise
        return lists, zxid

    def look(self, path: str) -> tuple[bytes, Stat] | None:
        """Data and stat, or None if the znode does not exist."""
        try:
            znodes = self.ask(requests.GetData(path), f"reading {path}")
        except NoNode:
            return None
        return znodes.data(0), znodes.stat(0)

    def present(self, path: str) -> bool:
        """Whether the znode exists, for callers that need nothing else: one that may not be read does."""
        try:
            return self.look(path) is not None
        except Forbidden:
            return True

    def make(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False, public: bool = False
    ) -> str:
        """Create a znode and return its actual path. Raises `NodeExists`, `NoNode` (the parent), `Unknown`.

        ``public``: every client has all permissions on it, whatever the ACL of this session.
        """
        flags = ephemeral + 2 * sequence
        acl = OPEN_ACL_UNSAFE if public else self._acl_of(path)
        return str(self.ask(Create(path, data, acl, flags), f"creating {path}", writing=True))

    def put(self, path: str, data: bytes, version: int) -> int:
        """Set the data if the znode has this version (-1: any) and return the new version. Raises `BadVersion`,
        `NoNode`, `Unknown`."""
        return int(self.ask(SetData(path, data, version), f"writing {path}", writing=True).version)

    def drop(self, path: str, version: int) -> None:
        """Delete a znode if it has this version (-1: any). Raises `BadVersion`, `NoNode`, `NotEmpty`, `Unknown`."""
        if self.fence is not None:
            self._drop_fenced(path, version)
            return
        self.ask(Delete(path, version), f"deleting {path}", writing=True)

    def _drop_fenced(self, path: str, version: int) -> None:
        [answer] = self.commit([[deletion(path, version)]])
        if not isinstance(answer, CommittedNode):
            raise answer
        if (code := answer.codes[0]) is not None:
            with translated(f"deleting {path}", writing=True):
                raise EXCEPTIONS[code]

    def creation(self, path: str, data: bytes = b"") -> bytes:
        """A create operation for `commit`. The first one below the tree reads the ACL of the tree."""
        return requests.creation(path, data, requests.access(self._acl_of(path)))

    def _acl_of(self, path: str) -> tuple[Any, ...]:
        """The ACL of a new znode. Raises `Forbidden`, `Retry` if that of the tree is not readable."""
        if not self._tree or not path.startswith(f"{self._tree}/"):
            return tuple(self.default_acl)
        if not self._below:
            self._below = tuple(shared(self.ask(GetACL(self._tree), f"reading the ACL of {self._tree}")[0]))
        return self._below

    def commit(self, batches: Iterable[Sequence[bytes]], window: int = 8) -> Iterator["CommittedNode | TrueupError"]:
        """Apply each batch of operations atomically, with ``window`` batches in flight.

        Yields the result of each batch in order: an error if the response was lost.
        """
        waiting: deque[tuple[requests.Multi, Any]] = deque()
        for operations in batches:
            multi = requests.Multi([self.fence.check(self), *operations] if self.fence else operations)
            waiting.append((multi, self.send(multi)))
            if len(waiting) >= window:
                yield self._committed(*waiting.popleft())
        while waiting:
            yield self._committed(*waiting.popleft())

    def _committed(self, multi: requests.Multi, result: Any) -> "CommittedNode | TrueupError":
        try:
            codes = self._await(result, "committing", writing=True)
        except TrueupError as error:
            return error
        if self.fence is not None:
            if codes[0]:
                return self.fence.refused()
            codes = codes[1:]
        return CommittedNode(codes, multi.zxid)


__all__ = ["FAST", "GENTLE", "CommittedNode", "NodeEvent", "Pace", "ZooKeeperClient", "check", "deletion", "writing"]
