"""The clock of the machine is set while the application runs."""

import pytest

from trueup.connectors.clock import SteadyClock
from trueup.streams.runtime.process.clock import ClockWatch

HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000


class Machine:
    """A machine whose clock can be set."""

    def __init__(self) -> None:
        self.wall_ms, self.even_ms = START_MS, 5_000
        self.clock = SteadyClock(lambda: self.wall_ms * 1_000_000, lambda: self.even_ms * 1_000_000)
        self.watch = ClockWatch(self.clock)

    def wait(self, ms: int) -> None:
        self.wall_ms += ms
        self.even_ms += ms


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS])
def test_ages_do_not_jump_with_the_clock_of_the_machine(jump_ms: int) -> None:
    machine = Machine()
    before = machine.clock()
    machine.wait(1_000)
    machine.wall_ms += jump_ms
    machine.wait(1_000)
    assert (before, machine.clock() - before) == (START_MS, 2_000)


@pytest.mark.parametrize(("jump_ms", "text"), [(HOUR_MS, "forward by 1h"), (-HOUR_MS, "back by 1h")])
def test_a_jump_is_a_problem_that_names_it(jump_ms: int, text: str) -> None:
    machine = Machine()
    machine.wall_ms += jump_ms
    assert machine.watch.problem().startswith(f"the clock of this machine was set {text} while Trueup runs")


def test_a_clock_that_was_set_right_again_is_no_problem() -> None:
    machine = Machine()
    machine.wall_ms += HOUR_MS
    machine.wall_ms -= HOUR_MS - 1_000
    assert machine.watch.problem() == ""


def test_spark_starts_again_once_for_a_clock_that_was_set_back() -> None:
    machine = Machine()
    machine.wall_ms -= HOUR_MS
    assert [machine.watch.set_back(), machine.watch.set_back()] == ["the clock of this machine was set back by 1h", ""]


@pytest.mark.parametrize("jump_ms", [HOUR_MS, 0, -1_000])
def test_spark_goes_on_with_a_clock_that_was_set_forward_or_hardly_back(jump_ms: int) -> None:
    machine = Machine()
    machine.wall_ms += jump_ms
    assert machine.watch.set_back() == ""
