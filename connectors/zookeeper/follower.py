"""Keeps a session and a watch through any loss of connection, session or servers, turn by turn.

Turns are taken by whoever runs it, in a thread of its own: our errors are waited out here, all others are a defect,
which the runner sees to.
"""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

from trueup.connectors.zookeeper.client import Client
from trueup.connectors.zookeeper.history import Rewound
from trueup.connectors.zookeeper.watch import Watch
from trueup.state.common.backoff import backoff
from trueup.state.common.errors import Retry, TrueupError

log = logging.getLogger(__name__)
FIRST_WAIT_S, LONGEST_WAIT_S, IDLE_S = 0.1, 5.0, 1.0
CLOSE_S = 3.0
LONGEST_DEFECT = 500
Run = Callable[[str, Callable[[], None], threading.Event], threading.Thread]
"""Starts a thread of this name that takes a turn again and again until the event is set, whatever the turn raises."""


class Stopping(Exception):  # noqa: N818 - it is no error
    """It was told to stop while it waited."""


class Watcher(ABC):
    """Takes turns until closed; after one that failed it waits, each time twice as long, or for the connection.

    ``connect`` makes a client that is not open yet. ``defect``: what ended the last turn though it is none of our
    errors, empty if nothing did.
    """

    def __init__(self, name: str, connect: Callable[[], Client], watch: Watch) -> None:
        self._name, self._connect, self._watch = name, connect, watch
        self._client: Client | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.defect = ""
        self._failures = 0

    @abstractmethod
    def _turn(self) -> None:
        """Get in step if need be, then wait for something to happen and see to it."""

    @abstractmethod
    def _waits(self, error: TrueupError | None) -> None:
        """Note what keeps it from going on; None: nothing does any more."""

    def start(self, run: Run) -> None:
        """Begin. Returns at once."""
        self._thread = run(self._name, self.turn, self._stop)

    def close(self) -> None:
        """Stop, and end the session with everything that is bound to it: a turn that goes on will not get far."""
        self._stop.set()
        self._watch.turned.set()
        self._watch.wake.set()
        if self._thread is not None:
            self._thread.join(CLOSE_S)
        if self._client is not None:
            self._client.shut()

    def turn(self) -> None:
        """Take a turn; after one that failed, wait."""
        try:
            self._turn()
        except Stopping:
            return
        except TrueupError as error:
            self.defect = ""
            self._waits(error)
            self._watch.turned.wait(backoff(FIRST_WAIT_S, self._failures, LONGEST_WAIT_S))
            self._watch.turned.clear()
            self._failures += 1
        except BaseException as error:
            self.defect = f"{type(error).__name__}: {error}"[:LONGEST_DEFECT]
            raise
        else:
            self._waits(None)
            self.defect, self._failures = "", 0

    def _until_done(self, act: Callable[[], None]) -> None:
        """Call this again and again until it does not fail. Raises `Stopping`."""
        failures = 0
        while True:
            try:
                return act()
            except TrueupError as error:
                self._waits(error)
                if self._stop.wait(backoff(FIRST_WAIT_S, failures, LONGEST_WAIT_S)):
                    raise Stopping from error
                failures += 1

    def _session(self) -> Client:
        """The client, connected; a new one after its session ended. Raises `Retry`."""
        if self._client is not None and self._client.ended:
            self._client.shut()
            self._client = None
        if self._client is None:
            client = self._connect()
            self._watch.follow(client)
            self._client = client.open(given_up=self._stop.is_set)
        return self._open_client()

    def _open_client(self) -> Client:
        if self._client is None or not self._client.connected:
            raise Retry("a session with ZooKeeper", "none", "it reconnects by itself")
        return self._client


class Follower(Watcher):
    """Is in step with a part of the tree: reads all of it, and then what events name. ``problem``: what keeps it from
    going on, empty if nothing; ``complete_ms``: all that had happened by then, in ms since the epoch, was handled."""

    def __init__(self, name: str, connect: Callable[[], Client], watch: Watch, now: Callable[[], int]) -> None:
        super().__init__(name, connect, watch)
        self._now = now
        self.problem, self.complete_ms = "", 0

    @abstractmethod
    def _sync(self, client: Client) -> None:
        """Add the watches, then read whatever may have changed before they were there."""

    @abstractmethod
    def _handle(self, client: Client) -> None:
        """Handle all events that came."""

    def _waits(self, error: TrueupError | None) -> None:
        problem = str(error) if error else ""
        if problem and problem != self.problem:
            log.warning("%s waits", self._name, extra={"problem": problem})
        self.problem = problem

    def _turn(self) -> None:
        client = self._session()
        if not self._watch.armed:
            losses = self._watch.losses()
            self._sync(client)
            if not self._watch.arm(losses):
                raise Retry("the connection to hold until all was read", "it was lost", "will compare again")
        self._watch.wait(IDLE_S)
        if self._watch.armed:
            begun_ms = self._now()
            try:
                self._handle(client)
            except Rewound:
                self._watch.disarm(forget=True)
                raise
            if self._watch.armed:
                self.complete_ms = int(min(begun_ms, self._watch.told_ms()))
