"""A TCP relay in a separate process. Its CPU time does not count for the measured process.

    python -m bench.common.relay HOST:PORT

The first line of standard output is the address of the relay. Standard input takes commands: "cut" closes all
connections and rejects new ones, "open" accepts connections again. Each completed command is printed.
"""

import subprocess
import sys
from types import TracebackType
from typing import Self

from tests.proxy import Proxy


class Relay:
    """Starts and controls the relay process."""

    def __init__(self, target: str) -> None:
        command = [sys.executable, "-m", "bench.common.relay", target]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address = self._line()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def cut(self) -> None:
        """Close all connections and reject new ones."""
        self._tell("cut")

    def open(self) -> None:
        """Accept connections again."""
        self._tell("open")

    def _tell(self, order: str) -> None:
        assert self._process.stdin is not None, "a pipe"
        print(order, file=self._process.stdin, flush=True)
        self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None, "a pipe"
        return self._process.stdout.readline().strip()


def main(target: str) -> None:
    with Proxy(target) as proxy:
        print(proxy.address, flush=True)
        for line in sys.stdin:
            proxy.open = line.strip() == "open"
            if not proxy.open:
                proxy.cut()
            print(line.strip(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
