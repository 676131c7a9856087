"""The pass of a supervised task that the present thread executes. Every log line of a pass names it."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

PASS: ContextVar[str] = ContextVar("pass", default="")
"""The name of the task and the number of its pass or batch; empty outside of a pass."""


@contextmanager
def within(task: str, number: int) -> Iterator[None]:
    """Execute the body as this pass."""
    token = PASS.set(f"{task}-{number}")
    try:
        yield
    finally:
        PASS.reset(token)
