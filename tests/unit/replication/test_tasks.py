"""The environment of the processes that execute leases, in place of Spark's context."""

from types import SimpleNamespace
from typing import Any, Self

import pytest

from trueup.streams.replication.links.worker import ENVIRONMENT
from trueup.streams.replication.query import POOL, LinkTasks

FIRST = next(iter(ENVIRONMENT))
ORDERS: Any = [SimpleNamespace(lease=SimpleNamespace(link="orders"))]


class Context:
    """A context, and its tasks, which have the environment of the time at which they were made."""

    def __init__(self, **environment: str) -> None:
        self.environment = environment
        self.given = dict[str, str]()
        self._jrdd = self.ctx = self

    def parallelize(self, _numbers: list[int], _count: int) -> Self:
        return self

    def cache(self) -> Self:
        return self

    def mapPartitions(self, _task: object) -> Self:  # noqa: N802
        self.given = dict(self.environment)
        return self

    def collect(self) -> list[object]:
        return []


def lent(context: Context) -> Context:
    spark: Any = SimpleNamespace(sparkContext=context)
    LinkTasks().lend(spark, ORDERS)
    return context


def test_workers_have_the_variables_of_links_and_of_all_workers() -> None:
    assert lent(Context(LANG="C")).given == {**ENVIRONMENT, "LANG": "C", POOL: "orders"}


def test_a_variable_that_an_operator_gives_to_all_workers_is_kept() -> None:
    assert lent(Context(**{FIRST: "7"})).given[FIRST] == "7"


def test_workers_of_other_streams_keep_their_environment() -> None:
    assert lent(Context(LANG="C")).environment == {"LANG": "C"}


def test_a_failure_leaves_the_environment_of_other_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_context: Context, _task: object) -> None:
        raise OSError("the context is gone")

    monkeypatch.setattr(Context, "mapPartitions", fails)
    context = Context(LANG="C")
    with pytest.raises(OSError, match="gone"):
        lent(context)
    assert context.environment == {"LANG": "C"}
