"""What the application knows of a stream before it makes it: the entry of a stream in the catalog.

A descriptor is imported by every command, so what is heavy (Spark, clients of servers) is imported by its functions
when they are called.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trueup.state.common.rules import Rule
from trueup.state.settings.settings import Settings

if TYPE_CHECKING:
    from trueup.streams.runtime.context import Context
    from trueup.streams.runtime.stream import Stream


@dataclass(frozen=True, slots=True)
class Noun:
    """Something of which there is a list, at /api/NAME. ``limit``: rows without the parameter limit, 0: it has no such
    parameter; ``choices``: its other parameters, each with the values that it may have."""

    name: str
    limit: int = 0
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Thing:
    """Something of which one is described, at /api/PATH. ``path`` has its names as variables; ``ids``: those of them
    that are numbers from 0 to 2^63 - 1."""

    name: str
    path: str
    ids: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A stream. ``make``: the stream, or None where the settings ask for none; then ``absent`` is what the JSON of the
    status holds, and ``todo`` what an operator does to have it. ``lists`` and ``things``: its nouns. ``rules``: those
    that its findings and actions name. ``told``: `trueup status` has lines of its own for it."""

    name: str
    make: Callable[["Context"], "Stream | None"]
    absent: Callable[[Settings], Mapping[str, Any]] = lambda _: {}
    todo: str = "declare it in the settings"
    lists: Sequence[Noun] = ()
    things: Sequence[Thing] = ()
    rules: Iterable[Rule] = ()
    told: bool = False
