"""What `trueup plan` says on a terminal about actions that are not executed."""

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_engine import FakeEngine
from tests.unit.cli.fake_rows import move
from trueup.state.settings.settings import change
from trueup.streams.terminal import out

HINT = "In mode observe no action is executed: trueup config set"


@pytest.fixture
def hints(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is said below the table."""
    said: list[str] = []
    monkeypatch.setattr(out, "hints", lambda: True)
    monkeypatch.setattr(out, "note", said.append)
    return said


@pytest.mark.parametrize(("mode", "said"), [("observe", [f"{HINT} placement.mode approve"]), ("enforce", [])])
def test_planned_repairs_are_executed_unless_in_mode_observe(
    run: Run, engine: FakeEngine, hints: list[str], mode: str, said: list[str]
) -> None:
    engine.state["mode"], engine.settings = mode, change(engine.settings, "placement.mode", mode)
    run("plan")
    assert hints == said


def test_the_mode_named_is_that_of_the_planned_actions(run: Run, engine: FakeEngine, hints: list[str]) -> None:
    engine.shelved().judged, engine.moves = [], [move("planned")]
    run("plan")
    assert hints == [f"{HINT} logdirs.east.mode approve"]


def test_every_mode_of_planned_actions_is_named(run: Run, engine: FakeEngine, hints: list[str]) -> None:
    engine.shelved().moves, engine.state["mode"] = [move("planned")], "observe"
    run("plan")
    assert hints == [f"{HINT} placement.mode approve, also with logdirs.east.mode"]
