"""A broker that is also reachable through a relay that can reject, drop and delay data."""

import time
from collections.abc import Mapping
from pathlib import Path

from tests.proxy import Proxy
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.embedded.processes import Port

DELAY_S = 0.25
HOST = "127.0.0.2"
"""The host of all clients behind the relay, as the broker sees it."""
PROTOCOLS = ",".join(f"{listener}:PLAINTEXT" for listener in ("CONTROLLER", "PLAINTEXT", "RELAY"))


class Relayed(Kafka):
    """`bootstrap` connects to the broker directly, `relayed` connects through the relay."""

    def __init__(self, root: Path, settings: Mapping[str, object]) -> None:
        self._behind = Port()
        self.relay = Proxy(str(self._behind), HOST)
        super().__init__(root, settings={**settings, "listener.security.protocol.map": PROTOCOLS})

    @property
    def relayed(self) -> str:
        """host:port of the relay."""
        return self.relay.address

    def layout(self) -> dict[str, object]:
        made = super().layout()
        made["listeners"] = f"{made['listeners']},RELAY://{self._behind}"
        made["advertised.listeners"] = f"{made['advertised.listeners']},RELAY://{self.relayed}"
        return made

    def close(self) -> None:
        super().close()
        self.relay.close()
        self._behind.release()

    def refuse(self, for_s: float) -> None:
        """Close all connections and reject new ones for ``for_s`` seconds."""
        self.cut()
        time.sleep(for_s)
        self.mend()

    def cut(self) -> None:
        """Close all connections and reject new ones until `mend`."""
        self.relay.open = False
        self.relay.cut()

    def mend(self) -> None:
        """Accept connections again."""
        self.relay.open = True

    def lose(self, for_s: float) -> None:
        """Forward requests and drop responses for ``for_s`` seconds, then close the connections."""
        self.relay.deaf = True
        time.sleep(for_s)
        self.relay.cut()
        self.relay.deaf = False

    def delay(self, for_s: float) -> None:
        """Delay all data for ``for_s`` seconds."""
        self.relay.change = _late
        time.sleep(for_s)
        self.relay.change = _unchanged


def _late(_way: str, data: bytes) -> bytes:
    time.sleep(DELAY_S)
    return data


def _unchanged(_way: str, data: bytes) -> bytes:
    return data
