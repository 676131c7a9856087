"""Metrics of sessions with ZooKeeper."""

from collections.abc import Callable

from trueup.streams.runtime.metrics import Metrics, StreamMetrics

SESSION_STATES = ("connected", "suspended")


class ZooKeeperMetrics(StreamMetrics):
    """The metrics of Trueup's sessions with ZooKeeper."""

    def __init__(self, metrics: Metrics) -> None:
        self.sessions = metrics.gauge(
            "zookeeper_sessions", "Trueup's ZooKeeper sessions by state, without expired sessions", "state"
        )
        self.reconnects = metrics.counter("zookeeper_reconnects_total", "reconnects of ZooKeeper sessions")
        for state in SESSION_STATES:
            self.sessions.at(state)

    def session(self) -> Callable[[str], None]:
        """A listener for one more session, called with kazoo's new states: CONNECTED, SUSPENDED, LOST."""
        states = [""]

        def on_state(state: str) -> None:
            before, states[0] = states[0], state.lower()
            if states[0] == "connected" and before:
                self.reconnects.at().inc()
            for name in SESSION_STATES:
                self.sessions.at(name).inc((states[0] == name) - (before == name))

        return on_state
