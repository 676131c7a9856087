"""Human-readable times and counts."""

import pytest

from trueup.state.common.counts import many
from trueup.streams.runtime.format import age, bounded, short, since, size


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, "-"),
        (-5, "0s"),
        (999, "0s"),
        (45_000, "45s"),
        (60_000, "1m"),
        (192_000, "3m12s"),
        (1_205_000, "20m"),
        (18_120_000, "5h2m"),
        (108_000_000, "1d6h"),
        (1_051_200_000, "12d"),
    ],
)
def test_age(ms: int | None, text: str) -> None:
    assert age(ms) == text


def test_since_never() -> None:
    assert since(5000, None) == "-"


@pytest.mark.parametrize(("count", "text"), [(0, "0 ledgers"), (1, "1 ledger"), (1200, "1,200 ledgers")])
def test_many(count: int, text: str) -> None:
    assert many(count, "ledger") == text


@pytest.mark.parametrize(
    ("count", "text"), [(512, "512 B"), (1536, "1.5 KiB"), (20 << 30, "20 GiB"), (3 << 40, "3.0 TiB")]
)
def test_size(count: int, text: str) -> None:
    assert size(count) == text


def test_short_rule() -> None:
    assert short("placement.no-walk") == "no-walk"


def test_texts_are_cut_wherever_they_are() -> None:
    assert bounded({"a": ["12345", ("123456", 7)], "123456": None}, 5) == {"a": ["12345", ["1234…", 7]], "1234…": None}
