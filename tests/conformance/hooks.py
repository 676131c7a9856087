"""Hooks for rejected records, as operators write them."""

from collections.abc import Sequence

from trueup.connectors.contract import Failure

seen: list[Failure] = []


def handle(failures: Sequence[Failure]) -> list[bool]:
    seen.extend(failures)
    return [True] * len(failures)


def refuse(failures: Sequence[Failure]) -> list[bool]:
    return [False] * len(failures)


def fail(failures: Sequence[Failure]) -> list[bool]:
    raise LookupError("the hook's own trouble")


def say_nothing(failures: Sequence[Failure]) -> list[bool]:
    return []
