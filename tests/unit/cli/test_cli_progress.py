"""What a command that takes long reports on stderr."""

import pytest

from trueup.connectors.embedded.processes import wait_until
from trueup.streams.terminal import out


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("QUIET_S", "TICK_S", "REPEAT_S"):
        monkeypatch.setattr(out, name, 0.01)


def read_until(capsys: pytest.CaptureFixture[str], text: str) -> str:
    found: list[str] = []
    wait_until(lambda: found.append(capsys.readouterr().err) or text in "".join(found), 180.0, f"{text} on stderr")
    return "".join(found)


@pytest.mark.usefixtures("impatient")
def test_a_slow_command_reports_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with out.progress("copying"):
        assert read_until(capsys, "\n").startswith("copying (0 s)\n")


@pytest.mark.usefixtures("impatient")
def test_what_a_command_waits_for_has_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    with out.progress("waiting for a") as better:
        read_until(capsys, "for a")
        better("waiting for b")
        read_until(capsys, "for b (")


@pytest.mark.usefixtures("impatient")
def test_a_wait_without_a_change_is_repeated_with_its_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    with out.progress("waiting"):
        read_until(capsys, "waiting (1 s)\n")


@pytest.mark.usefixtures("impatient")
def test_a_terminal_shows_the_seconds(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with out.progress("waiting"):
        read_until(capsys, "waiting (1 s)")


def test_a_quick_command_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with out.progress("copying"):
        pass
    assert capsys.readouterr().err == ""
