"""Maintains a session and a watch across losses of the connection, the session or the servers, step by step.

Another component runs the steps, on a separate thread. This module retries after Trueup's errors; any other error is a
defect, which the runner handles.
"""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.connectors.zookeeper.history import Missed, Rewound
from trueup.connectors.zookeeper.watch import NodeWatch
from trueup.state.common.backoff import backoff
from trueup.state.common.errors import Retry, TrueupError

log = logging.getLogger(__name__)
FIRST_WAIT_S, LONGEST_WAIT_S, IDLE_S = 0.1, 5.0, 1.0
CLOSE_S = 3.0
LONGEST_DEFECT = 500
Run = Callable[[str, Callable[[], None], threading.Event], threading.Thread]
"""Starts a thread of this name that repeats a step until the event is set, whatever the step raises."""


class Stopping(Exception):  # noqa: N818 - not an error
    """It was stopped during a wait."""


class Watcher(ABC):
    """Runs steps until it is closed; after a failed step it waits with back-off, or for the connection.

    ``connect`` creates a client that is not open yet. ``defect``: the unexpected error of the last step, empty if
    there was none.
    """

    def __init__(self, name: str, connect: Callable[[], ZooKeeperClient], watch: NodeWatch) -> None:
        self._name, self._connect, self._watch = name, connect, watch
        self._client: ZooKeeperClient | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.defect = ""
        self._failures = 0

    @abstractmethod
    def _step(self) -> None:
        """Resynchronise if necessary, then wait for events and handle them."""

    @abstractmethod
    def _waits(self, error: TrueupError | None) -> None:
        """Record the error that prevents progress; None: there is none."""

    def start(self, run: Run) -> None:
        """Start. Returns immediately."""
        self._thread = run(self._name, self.run_once, self._stop)

    def close(self) -> None:
        """Stop, and end the session with everything bound to it, which also makes a running step fail."""
        self._stop.set()
        self._watch.connection_changed.set()
        self._watch.wake.set()
        if self._thread is not None:
            self._thread.join(CLOSE_S)
        if self._client is not None:
            self._client.shut()

    def run_once(self) -> None:
        """Run a step; wait if it fails."""
        try:
            self._step()
        except Stopping:
            return
        except TrueupError as error:
            self.defect = ""
            self._waits(error)
            self._watch.connection_changed.wait(backoff(FIRST_WAIT_S, self._failures, LONGEST_WAIT_S))
            self._watch.connection_changed.clear()
            self._failures += 1
        except BaseException as error:
            self.defect = f"{type(error).__name__}: {error}"[:LONGEST_DEFECT]
            raise
        else:
            self._waits(None)
            self.defect, self._failures = "", 0

    def _until_done(self, act: Callable[[], None]) -> None:
        """Call ``act`` until it succeeds. Raises `Stopping`."""
        failures = 0
        while True:
            try:
                return act()
            except TrueupError as error:
                self._waits(error)
                if self._stop.wait(backoff(FIRST_WAIT_S, failures, LONGEST_WAIT_S)):
                    raise Stopping from error
                failures += 1

    def _session(self) -> ZooKeeperClient:
        """The connected client; a new one after its session ended. Raises `Retry`."""
        if self._client is not None and self._client.ended:
            self._client.shut()
            self._client = None
        if self._client is None:
            client = self._connect()
            self._watch.follow(client)
            self._client = client.open(given_up=self._stop.is_set)
        return self._open_client()

    def _open_client(self) -> ZooKeeperClient:
        if self._client is None or not self._client.connected:
            raise Retry("a session with ZooKeeper", "none", "the client reconnects by itself")
        return self._client


class Follower(Watcher):
    """Follows a part of the tree: reads all of it, and then what events name. ``problem``: the error that prevents
    progress, empty if none; ``complete_ms``: the time (ms since the epoch) up to which everything was handled."""

    def __init__(
        self, name: str, connect: Callable[[], ZooKeeperClient], watch: NodeWatch, now: Callable[[], int]
    ) -> None:
        super().__init__(name, connect, watch)
        self._now = now
        self.problem, self.complete_ms = "", 0

    @abstractmethod
    def _sync(self, client: ZooKeeperClient) -> None:
        """Add the watches, then read whatever may have changed before they were added."""

    @abstractmethod
    def _handle(self, client: ZooKeeperClient) -> None:
        """Handle all events received so far."""

    def _waits(self, error: TrueupError | None) -> None:
        problem = str(error) if error else ""
        if problem and problem != self.problem:
            log.warning("%s interrupted", self._name, extra={"problem": problem})
        self.problem = problem

    def _step(self) -> None:
        client = self._session()
        if not self._watch.armed:
            losses = self._watch.losses()
            self._sync(client)
            if not self._watch.arm(losses):
                raise Retry("a connection until everything was read", "a lost connection", "znodes are compared again")
        self._watch.wait(IDLE_S)
        if self._watch.armed:
            begun_ms = self._now()
            try:
                self._handle(client)
            except (Rewound, Missed):
                self._watch.disarm(forget=True)
                raise
            if self._watch.armed:
                self.complete_ms = int(min(begun_ms, self._watch.pending_ms()))
