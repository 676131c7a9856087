"""trueup drain, undrain and get drains."""

import json

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_engine import FakeEngine
from trueup.state.settings.settings import change, value_of
from trueup.streams.terminal import out

FIRST, SECOND = "127.0.0.5:3181", "127.0.0.6:3181"


@pytest.fixture
def draining(engine: FakeEngine) -> FakeEngine:
    engine.settings = change(engine.settings, "placement.drain", [FIRST, SECOND])
    return engine


def test_a_drain_is_a_live_setting(run: Run, engine: FakeEngine) -> None:
    done = run("drain", SECOND, FIRST)
    assert (done.code, done.out.splitlines()[0]) == (0, f"placement.drain is {SECOND}, {FIRST}")
    assert value_of(engine.settings, "placement.drain") == [SECOND, FIRST]


def test_bookies_that_are_drained_already_stay_so(run: Run, draining: FakeEngine) -> None:
    run("drain", FIRST)
    assert value_of(draining.settings, "placement.drain") == [FIRST, SECOND]


def test_an_unknown_bookie_is_not_drained(run: Run, engine: FakeEngine) -> None:
    done = run("drain", "127.0.0.5:3182")
    assert (done.code, "did you mean 127.0.0.5:3181?" in done.err) == (2, True)
    assert value_of(engine.settings, "placement.drain") == []


def test_a_drain_ends(run: Run, draining: FakeEngine) -> None:
    assert run("undrain", FIRST).code == 0
    assert value_of(draining.settings, "placement.drain") == [SECOND]


def test_only_a_drain_ends_that_has_begun(run: Run, draining: FakeEngine) -> None:
    done = run("undrain", "127.0.0.1:3181")
    assert (done.code, f"expected a bookie that is drained ({FIRST}, {SECOND})" in done.err) == (2, True)


def test_bookies_that_are_drained_are_shown_among_all(run: Run, draining: FakeEngine) -> None:
    lines = [line for line in run("get", "bookies").out.splitlines() if ", draining" in line]
    assert [line.split()[0] for line in lines] == [FIRST, SECOND]


def test_without_a_drain_the_list_is_empty(run: Run) -> None:
    assert run("get", "drains").out == "No bookie is drained.\n"


def test_what_is_left_is_shown_with_open_ledgers_and_their_owners(run: Run, draining: FakeEngine) -> None:
    lines = run("get", "drains").out.splitlines()
    assert lines[1].split()[:5] == [FIRST, "readonly", "3", "0", "3"]
    assert "  - 41, of tenant/ns/persistent/orders" in lines


def test_a_bookie_that_can_be_removed_is_shown_with_the_commands(
    run: Run, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(out, "hints", lambda: True)
    engine.settings = change(engine.settings, "placement.drain", [FIRST])
    engine.kept_open = 0
    assert f"bin/bookkeeper shell cookie_delete {FIRST}" in run("get", "drains").out


def test_json_says_whether_a_bookie_can_be_removed(run: Run, draining: FakeEngine) -> None:
    shown = json.loads(run("get", "drains", "-o", "json").out)
    assert [row["removable"] for row in shown] == [False, False]
