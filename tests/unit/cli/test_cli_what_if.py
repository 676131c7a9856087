"""`trueup what-if` as the running application answers it."""

import json
import time
from typing import Any

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_engine import FakeEngine
from tests.unit.cli.test_cli import rows
from trueup.streams.cli.commands import what_if

OLD = {"at_ms": 1_000, "again": True}


def test_what_would_happen_is_asked_of_the_application(run: Run) -> None:
    done = run("what-if", "rack")
    failures = [words[0] for words in rows(done)[1:4]]
    assert (failures, done.out.splitlines()[-1].endswith(" ago by the application.")) == (
        ["now", "/rack2", "/rack1"],
        True,
    ), done


def test_the_application_answers_for_one_bookie(run: Run) -> None:
    found = json.loads(run("what-if", "bookie", "127.0.0.2:3181", "-o", "json").out)
    assert ([row["name"] for row in found["rows"]], found["ledgers"]) == (["now", "127.0.0.2:3181"], 1204)


def test_several_names_together_need_the_cluster(run: Run) -> None:
    done = run("what-if", "bookie", "127.0.0.2:3181", "127.0.0.3:3181")
    assert (done.code, "name the cluster with -c FILE" in done.err) == (5, True), done


def answers(monkeypatch: pytest.MonkeyPatch, *found: dict[str, Any]) -> list[dict[str, Any]]:
    """The application answers with these fields, one after the other; returns those that it has not answered with."""
    first, left = FakeEngine().what_if("rack"), list(found)
    monkeypatch.setattr(what_if, "POLL_S", 0)
    monkeypatch.setattr(FakeEngine, "what_if", lambda *_, **__: first | left.pop(0))
    return left


def test_an_old_answer_is_not_shown_while_the_application_reads_again(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_ms = time.time_ns() // 1_000_000
    answers(monkeypatch, OLD, OLD, {"at_ms": new_ms, "again": False})
    assert json.loads(run("what-if", "rack", "-o", "json").out)["at_ms"] == new_ms


def test_an_answer_of_the_last_minutes_is_shown_while_the_application_reads_again(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = answers(monkeypatch, {"at_ms": time.time_ns() // 1_000_000 - 200_000, "again": True}, OLD)
    assert (run("what-if", "rack").code, left) == (0, [OLD])


def test_a_failed_reading_is_no_success_although_an_earlier_one_is_known(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch, OLD, {"at_ms": 1_000, "again": False, "error": "ZooKeeper does not respond"})
    done = run("what-if", "rack")
    assert (done.code, "ZooKeeper does not respond" in done.err, done.out) == (4, True, ""), done
