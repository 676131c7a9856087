"""A connection that can be lost, in a process of its own: what passes through it costs the measured process nothing.

    python -m bench.common.relay HOST:PORT

Standard output gets the address that leads there, then a line for each line of standard input that was obeyed:
"cut" loses all connections and takes no others, "open" takes them again.
"""

import subprocess
import sys
from types import TracebackType
from typing import Self

from tests.proxy import Proxy


class Relay:
    """The process, for whoever measures."""

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
        """Lose every connection, and take no more."""
        self._tell("cut")

    def open(self) -> None:
        """Take connections again."""
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
