"""What each part of the world offers to the driver, and the driver to each part."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from random import Random
from typing import Any, Protocol

from tests.simulation.instances import Leader, Process
from tests.simulation.journal import JournalLog
from tests.simulation.model import World


class Stream(Protocol):
    """What one leader does for a part, until it crashes."""

    def depose(self) -> None:
        """Another process leads from now on: nothing that this one does concerns the checkers."""

    def queue(self) -> None:
        """Events of the cluster arrive."""

    def step(self) -> None:
        """One iteration. Raises `Crash`."""

    def close(self) -> None:
        """The process ended."""


class Surroundings(Protocol):
    """The driver, as a part sees it."""

    rng: Random
    world: World
    log: JournalLog
    processes: list[Process]

    @property
    def leader(self) -> Process | None:
        """The process whose streams run."""

    def stream(self, name: str) -> Any:
        """The stream of a part in the leader; None if there is no leader or no such part."""

    def crashes(self, process: Process) -> AbstractContextManager[None]:
        """Ends a process at a planned crash."""

    def lose_checkpoint(self) -> None:
        """All processes crash, and Spark's checkpoints are lost."""


class Part:
    """A part of the world: its systems, what happens to them, and the streams of Trueup that take care of them."""

    name = ""
    halts = True
    """Whether a process may be stopped in the middle of a step of its stream."""
    rounds = 1
    """By how much a run with this part has more rounds of events: what takes more steps to happen needs more."""

    def __init__(self, around: Surroundings) -> None:
        self.around, self.world, self.rng, self.log = around, around.world, around.rng, around.log

    def sections(self) -> Mapping[str, Any]:
        """The settings of the part, as in a configuration file or as objects of their sections."""
        return {}

    def begin(self, process: Process, leader: Leader, made: Callable[[str], Any]) -> Stream:
        """The stream of a new leader. ``made``: its streams of the parts before this one."""
        raise NotImplementedError

    @property
    def ahead_ms(self) -> int:
        """The time that passed in the last step, in ms."""
        return 0

    def taken_over(self) -> None:
        """A new leader begins without the checkpoint of the last one."""

    def compacted(self) -> None:
        """The checkpoint is lost, and the topics may contain only the newest record of each key."""

    def advanced(self) -> None:
        """Time has passed."""

    def happen(self) -> None:
        """Events, also those of operators."""

    def end_faults(self) -> None:
        """Nothing fails or changes from now on."""

    def calm(self) -> None:
        """What an operator does in the calm, after each step."""

    def quiet(self) -> bool:
        """Whether no work is left."""
        return True

    def counted(self) -> Mapping[str, int]:
        """Statistics of the run by their names in `Outcome`."""
        return {}

    def left(self) -> str:
        """What is left to do, as text."""
        return ""

    def ended(self) -> None:
        """The last checks. Raises `Violation`."""
