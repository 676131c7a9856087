"""A rate limit that takes the current time as an argument."""

import pytest

from trueup.state.common.token_bucket import TokenBucket


def test_it_starts_with_one_burst() -> None:
    assert TokenBucket(10, 0.5, 100.0).room(100.0) == 5


def test_it_holds_no_more_than_one_burst() -> None:
    assert TokenBucket(10, 0.5, 100.0).room(1000.0) == 5


def test_a_slow_one_still_grants_one_token() -> None:
    assert TokenBucket(0.01, 0.5, 100.0).room(100.0) == 1


def test_what_was_taken_comes_back_at_the_rate() -> None:
    bucket = TokenBucket(10, 0.5, 100.0)
    bucket.take(5)
    assert bucket.room(100.2) == pytest.approx(2)


def test_an_overdraft_is_paid_back_before_the_next_token() -> None:
    bucket = TokenBucket(10, 0.5, 100.0)
    bucket.take(14)
    assert bucket.wait(100.0) == pytest.approx(1.0)


def test_a_new_rate_holds_from_the_next_call_on() -> None:
    bucket = TokenBucket(10, 0.5, 100.0)
    bucket.take(5)
    bucket.limit(2)
    assert bucket.room(100.5) == pytest.approx(1)


def test_a_clock_that_goes_back_grants_nothing() -> None:
    bucket = TokenBucket(10, 0.5, 100.0)
    bucket.take(5)
    assert bucket.room(40.0) == 0


def test_no_rate_is_no_limit() -> None:
    bucket = TokenBucket(0, 0.5, 100.0)
    bucket.take(1_000_000)
    assert (bucket.room(100.0), bucket.wait(100.0)) == (float("inf"), 0.0)
