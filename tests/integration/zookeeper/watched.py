"""A capture that observes ZooKeeper through a proxy."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from tests.proxy import Proxy
from trueup.connectors.embedded.processes import wait_until

WAIT_S = 180.0


class Health(Protocol):
    """The health of any capture."""

    @property
    def connected(self) -> bool: ...

    @property
    def synced(self) -> bool: ...


class Capture(Protocol):
    """Common part of all captures."""

    def health(self) -> Health: ...


C = TypeVar("C", bound=Capture)


class Watched:
    """Owns the proxy between a capture and its ZooKeeper."""

    proxy: Proxy

    def in_step(self, capture: C) -> C:
        """Wait until the capture is synchronized, and return it."""
        wait_until(lambda: capture.health().synced, WAIT_S, "the capture to be in step")
        return capture

    def lose(self, capture: Capture, meanwhile: Callable[[], None]) -> None:
        """Cut the connection, run ``meanwhile``, and restore the connection."""
        self.proxy.open = False
        self.proxy.cut()
        wait_until(lambda: not capture.health().connected, WAIT_S, "the loss to be noticed")
        meanwhile()
        self.proxy.open = True
        wait_until(lambda: capture.health().synced, WAIT_S, "the capture to be in step again")
