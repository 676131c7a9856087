"""What the application knows of a stream before it makes it: the entry of a stream in the catalog.

A descriptor is imported by every command, so what is heavy (Spark, clients of servers) is imported by its functions
when they are called.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trueup.state.common.rules import Rule
from trueup.state.settings.settings import Settings
from trueup.streams.runtime.signs import Signs

if TYPE_CHECKING:
    from click import Command

    from trueup.streams.runtime.checks import Check
    from trueup.streams.runtime.context import Context
    from trueup.streams.runtime.metrics import Metrics, Part
    from trueup.streams.runtime.stream import Stream


@dataclass(frozen=True, slots=True)
class Noun:
    """Something of which there is a list, at /api/NAME. ``limit``: rows without the parameter limit, 0: it has no such
    parameter; ``choices``: its other parameters, each with the values that it may have; ``about``: its title, of a
    noun that `trueup get` lists with all its fields, empty if a command of the stream lists it."""

    name: str
    limit: int = 0
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    about: str = ""


@dataclass(frozen=True, slots=True)
class Thing:
    """Something of which one is described, at /api/PATH. ``path`` has its names as variables; ``ids``: those of them
    that are numbers from 0 to 2^63 - 1; ``about`` as of a `Noun`, for `trueup describe`."""

    name: str
    path: str
    ids: Sequence[str] = ()
    about: str = ""


@dataclass(frozen=True, slots=True)
class Verb:
    """A request that changes something: POST /api/PATH with a JSON object. ``path`` and ``ids`` as of a `Thing`;
    ``read``: the arguments in such an object, None if it is not of the ``form``, which is an example; ``todo``: what
    the caller of another form is told."""

    name: str
    path: str
    form: str
    read: Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
    todo: str
    ids: Sequence[str] = ()


def certain(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The arguments, none, of a request that has to say that it is meant: {"certain": true}."""
    return {} if body == {"certain": True} else None


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the status page. ``template``: a file in the folder of streams; it is given the ``status`` and the
    ``rows`` of the ``noun``, as ``shape`` makes them, ``limit`` of them at most. ``beside``: it stands beside others;
    ``card``: whether it has a frame, which a section without content has not."""

    name: str
    template: str
    noun: str = ""
    shape: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] = list
    limit: int = 60
    beside: bool = False
    card: Callable[[Mapping[str, Any]], bool] = lambda _: True

    @property
    def title(self) -> str:
        """The heading of a section that has no template of its own."""
        return self.name.capitalize()


@dataclass(frozen=True, slots=True)
class Commands:
    """What a stream adds to the command line: to `trueup get`, to `trueup describe`, and to `trueup` itself."""

    get: Sequence["Command"] = ()
    describe: Sequence["Command"] = ()
    groups: Sequence["Command"] = ()


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A stream. ``make``: the stream, or None where the settings ask for none; then ``absent`` is what the JSON of the
    status holds, and ``todo`` what an operator does to have it. ``lists`` and ``things``: its nouns; ``verbs``: what
    callers order of it. ``settings``: the
    dataclass of its section, which has its name; None if it has none or one of `Settings` itself. ``rules``: those
    that its findings and actions name. ``checks``: what
    `trueup doctor` looks at; ``topics``: further
    topics of the journal with their Avro schemas; ``page``: its
    sections of the status page, empty: one of its counts and findings; ``metrics``: the
    parts of /metrics; ``signs``: what the status of the application says of it, None: what its
    counts say."""

    name: str
    make: Callable[["Context"], "Stream | None"]
    absent: Callable[[Settings], Mapping[str, Any]] = lambda _: {}
    todo: str = "declare it in the settings"
    lists: Sequence[Noun] = ()
    things: Sequence[Thing] = ()
    verbs: Sequence[Verb] = ()
    settings: type | None = None
    rules: Iterable[Rule] = ()
    commands: Commands = Commands()
    checks: Callable[[Settings], Iterable["Check"]] = lambda _: ()
    topics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    page: Sequence[Section] = ()
    metrics: Callable[[], Sequence[Callable[["Metrics"], "Part"]]] = lambda: ()
    signs: Callable[[Mapping[str, Any]], Signs] | None = None
