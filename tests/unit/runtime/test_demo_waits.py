"""Waits of demos: as long as something moves, and never in silence."""

import itertools
import os
from pathlib import Path

import pytest

from trueup.sandbox.demo import waiting
from trueup.sandbox.demo.application import DemoApplication
from trueup.sandbox.demo.waiting import wait_for
from trueup.state.common.errors import Retry


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LOOK_S", 0.0)
    monkeypatch.setattr(waiting, "SAY_S", 0.0)


def test_a_wait_lasts_as_long_as_something_moves() -> None:
    looks, moves = itertools.count(), itertools.count()
    wait_for("the end", lambda: next(looks) == 100, lambda _: None, lambda: next(moves), still_s=0.05)
    assert next(moves) >= 100


def test_a_wait_ends_when_nothing_moves_and_names_what_is_left() -> None:
    with pytest.raises(Retry, match=r"expected every order; found 68 left for .* s; load .* on .* cores"):
        wait_for("every order", lambda: False, lambda _: None, lambda: "68 left", still_s=0.0)


def test_a_wait_for_trueup_shows_sources_that_are_not_up_and_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = {
        "ready": True,
        "links": [{"link": "h-s", "state": "stalled"}],
        "sources": [
            {"name": "journal", "state": "up", "detail": ""},
            {"name": "spark", "state": "down", "detail": "starting"},
        ],
    }
    monkeypatch.setattr(DemoApplication, "status", lambda _: status)
    said, looks = list[str](), itertools.count()
    DemoApplication({}, tmp_path, said.append).wait_until("all links to copy", lambda _: next(looks) == 3)
    assert "Trueup: ready, spark: starting, link h-s stalled; load" in said[0]


@pytest.mark.parametrize(("load", "slow"), [(0.5, False), (2.0, False), (40.0, True)])
def test_a_wait_shows_what_it_waits_for_and_whether_the_machine_is_too_slow(
    load: float, slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    said, looks = list[str](), itertools.count()
    wait_for("every order", lambda: next(looks) == 3, said.append, lambda: "68 left")
    assert said
    assert all("waiting for every order" in text and "68 left" in text for text in said)
    assert {"too slow" in text for text in said} == {slow}
