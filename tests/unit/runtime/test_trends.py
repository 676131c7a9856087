"""The numbers of the last hours."""

from trueup.streams.runtime.signs import Total
from trueup.streams.runtime.trends import Trends


def test_samples_are_in_order_of_time() -> None:
    trends = Trends()
    for at in (1_000, 2_000):
        trends.add(at, {"placement": {"drifted": at / 1_000}})
    assert trends.of("placement") == {"every_ms": 15_000, "at_ms": [1_000, 2_000], "series": {"drifted": [1.0, 2.0]}}


def test_only_the_newest_are_kept() -> None:
    trends = Trends(kept=3)
    for at in range(1, 6):
        trends.add(at, {"placement": {"drifted": at}})
    found = trends.of("placement")
    assert (found["at_ms"], found["series"]["drifted"]) == ([3, 4, 5], [3.0, 4.0, 5.0])


def test_a_series_without_a_number_has_a_gap() -> None:
    trends = Trends()
    trends.add(1, {"placement": {"drifted": 1}})
    trends.add(2, {})
    trends.add(3, {"placement": {"drifted": 3, "lost": 1}})
    assert trends.of("placement")["series"] == {"drifted": [1.0, None, 3.0], "lost": [None, None, 1.0]}


def test_a_total_is_shown_as_growth_per_second() -> None:
    trends = Trends()
    for at, copied in ((0, 100), (2_000, 300), (4_000, 50), (5_000, 60)):
        trends.add(at, {"replication": {"records/s": Total(copied)}})
    assert trends.of("replication")["series"]["records/s"] == [None, 100.0, None, 10.0]


def test_a_stream_without_samples_has_no_series() -> None:
    assert Trends().of("read_priority") == {"every_ms": 15_000, "at_ms": [], "series": {}}
