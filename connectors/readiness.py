"""Waits for connections that can be read.

``select.select`` refuses file descriptors from 1024 on (FD_SETSIZE), which a process with many connections has.
"""

import select
from collections.abc import Iterable
from typing import Protocol, TypeVar


class HasDescriptor(Protocol):
    """An open socket, or what wraps one."""

    def fileno(self) -> int:
        """The file descriptor."""


End = TypeVar("End", bound=HasDescriptor)


def readable(ends: Iterable[End], wait_s: float) -> list[End]:
    """Those of ``ends`` that have bytes, an error, or an end; waits up to ``wait_s`` seconds for the first. Bytes that
    a TLS connection has decrypted already do not count."""
    by_descriptor = {end.fileno(): end for end in ends}
    waiting = select.poll()
    for descriptor in by_descriptor:
        waiting.register(descriptor, select.POLLIN)
    return [by_descriptor[descriptor] for descriptor, _ in waiting.poll(wait_s * 1000)]
