"""Delays after consecutive failures."""

from trueup.state.common.backoff import backoff


def test_each_wait_is_twice_the_one_before() -> None:
    assert [backoff(500, failures, 30_000) for failures in range(4)] == [500, 1000, 2000, 4000]


def test_a_wait_is_not_longer_than_the_longest() -> None:
    assert [backoff(0.5, failures, 30.0) for failures in (6, 7, 1_000_000)] == [30.0, 30.0, 30.0]
