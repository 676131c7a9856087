"""Evaluation of benchmark measurements."""

import json
import random
from pathlib import Path

import pytest

from bench.common.rows import Row, beside_earlier, less, text, worst
from bench.replication.__main__ import AGAIN, NAMES, OWN, order
from bench.replication.contenders import Copied, together
from bench.replication.costs import Costs, costs
from bench.replication.groups import waits

KEY = ("group-1", 0)


def test_a_commit_arrives_with_the_first_one_that_reaches_it() -> None:
    here = {KEY: [(1_000, 10), (2_000, 20), (3_000, 30)]}
    there = {KEY: [(1_400, 9), (2_500, 21), (3_100, 29), (4_700, 35)]}
    assert waits(here, there, range(9_000), 9_000) == [1_500, 500, 1_700]


def test_a_commit_that_never_arrives_waits_until_the_end() -> None:
    assert waits({KEY: [(1_000, 10)]}, {}, range(9_000), 9_000) == [8_000]


def test_only_commits_count_that_went_on_and_were_made_in_time() -> None:
    here = {KEY: [(1_000, 10), (2_000, 10), (3_000, 30), (5_000, 40)]}
    there = {KEY: [(1_100, 10), (3_200, 30), (5_300, 40)]}
    assert waits(here, there, range(2_000, 4_000), 9_000) == [200]


def test_rows_of_what_was_not_measured_stay(tmp_path: Path) -> None:
    def row(what: str, ours: float) -> Row:
        return Row(what, "s", 1.0, ours, 1.0, 0.0)

    before = [row("100 B", 1.0), row("  rate", 1.0), row("Latency", 1.0), row("Groups", 1.0), row("  p50", 1.0)]
    results = tmp_path / "results.json"
    results.write_text(text(before))
    found = beside_earlier(results, [row("Latency", 2.0), row("  p50", 2.0)])
    assert [(r.what, r.ours) for r in found] == [
        ("100 B", 1.0),
        ("  rate", 1.0),
        ("Latency", 2.0),
        ("  p50", 2.0),
        ("Groups", 1.0),
        ("  p50", 1.0),
    ]
    assert len(json.loads(results.read_text())) == len(before)


def test_the_worst_round_decides() -> None:
    rounds = [less("auto", "us", [peer], [1.0]) for peer in (2.0, 0.5, 3.0)]
    assert worst(rounds) == Row("auto", "us", 2.0, 1.0, 0.5, 0.0)


def test_the_paths_of_one_round_run_one_after_the_other() -> None:
    for seed in range(50):
        found = order(NAMES, random.Random(seed))
        first = min(found.index(name) for name in OWN)
        own = found[first : first + AGAIN * len(OWN)]
        assert sorted(found) == sorted([*NAMES, *(AGAIN - 1) * OWN])
        assert sorted(own) == sorted(AGAIN * OWN), f"seed {seed}"


def test_the_copies_of_a_round_count_as_one() -> None:
    assert together([Copied(10, 1.0, 0.5, 2.0), Copied(10, 3.0, 1.5, 2.0)]) == Copied(20, 4.0, 2.0, 4.0)


def test_what_a_batch_and_a_record_cost_follows_from_two_sizes_of_each() -> None:
    def total(size: int, count: int) -> tuple[float, float]:
        """A batch costs 60 us plus 0.2 us per record; a single record costs 4.2 us plus 0.01 us per byte."""
        return 60 / count + 0.2, 0.2 + 4 + 0.01 * size

    found = costs({(size, count): total(size, count) for size in (100, 1_000) for count in (10, 900)})
    assert found == pytest.approx(Costs(60, 4, 0.01))


def test_one_size_of_record_does_not_determine_the_cost_of_a_byte() -> None:
    assert costs({(100, 10): (5.0, 4.0), (100, 900): (0.4, 4.0)}) is None
