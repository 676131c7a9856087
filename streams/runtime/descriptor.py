"""The entry of a stream in the catalog: what the application, API, page, command line and docs need of it.

Every command imports the descriptors. Their functions therefore import commands, Spark and clients of servers when
called, and their rules and settings are imported when read. Descriptors and their parts are named tuples: the class of
a data class takes ten times as long to make.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Never

from trueup.state.settings.roles import Role
from trueup.streams.journal.topic import JournalTopic
from trueup.streams.rows import Names, Row
from trueup.streams.runtime.named import imported
from trueup.streams.runtime.signs import Signs, signs_of

if TYPE_CHECKING:
    from click import Command

    from trueup.state.common.rules import Rule
    from trueup.state.settings.section import Section as Keys
    from trueup.state.settings.settings import Settings
    from trueup.streams.journal.journal import Journal
    from trueup.streams.runtime.checks import Check
    from trueup.streams.runtime.context import Context
    from trueup.streams.runtime.fields import StatusFields
    from trueup.streams.runtime.metrics import Metrics, StreamMetrics
    from trueup.streams.runtime.stream import Session, Stream
    from trueup.streams.runtime.warm import View

_NONE: Mapping[str, Never] = MappingProxyType({})


class Noun(NamedTuple):
    """A kind of resource that is listed at /api/NAME."""

    name: str
    limit: int = 0
    """The default value of the parameter limit; 0 if the noun has no such parameter."""
    choices: Mapping[str, tuple[str, ...]] = _NONE
    """The other parameters of the noun, each with its possible values."""
    about: str = ""
    """The title of a command `trueup get NAME` that lists all fields; empty if the stream has a command of its own for
    the noun."""
    selectors: Sequence[str] = ()
    """The names in `streams.web.engine.SELECTORS` that are parameters of the noun."""


class ResourceKind(NamedTuple):
    """A kind of resource that is described at /api/PATH."""

    name: str
    path: str
    """The path of the resource, with the names of the resource as variables."""
    ids: Sequence[str] = ()
    """The variables of the path that are numbers from 0 to 2^63 - 1."""
    about: str = ""
    """The title of a command `trueup describe NAME` that prints all fields; empty if the stream has a command of its
    own for the resource."""
    names: Callable[[Row], Names | None] | None = None
    """Returns the variables of the path for a row (a finding, an action of the plan or of the history) that concerns
    the resource, and None for other rows. A resource with this function has a page at /PATH."""
    template: str = ""
    """The path of a template below `streams/`, for the part of the page that is not generated from the description;
    empty if there is no such part."""
    shown: Sequence[str] = ()
    """The fields of the description that the template shows."""


def by_field(variable: str, field: str = "") -> Callable[[Row], Names | None]:
    """`ResourceKind.names` of a resource with one name, that of a field of the row."""
    return lambda row: {variable: value} if (value := row.get(field or variable)) not in (None, "") else None


class Verb(NamedTuple):
    """A request that changes something: POST /api/PATH with a JSON object."""

    name: str
    path: str
    """The path of the request, with the names of the resource as variables."""
    form: str
    """A valid object, shown in the error for an invalid one."""
    read: Callable[[Row], Row | None]
    """Returns the arguments in the object, or None if the object is invalid."""
    todo: str
    """A hint, shown in the error for an invalid object."""
    ids: Sequence[str] = ()
    """The variables of the path that are numbers from 0 to 2^63 - 1."""
    role: Role = Role.ADMIN
    """The least role of the callers."""


def certain(body: Row) -> Row | None:
    """The empty arguments of a request that is confirmed with {"certain": true}; None without the confirmation."""
    return {} if body == {"certain": True} else None


class PageSection(NamedTuple):
    """A section of the status page."""

    name: str
    template: str
    """The path of a template below `streams/`. The template receives the status of the application as ``status``, and
    rows of the noun as ``rows``."""
    noun: str = ""
    """The noun whose rows the template receives; empty if there is none."""
    shape: Callable[[list[Row]], list[Row]] = list
    """Converts the rows of the noun before the template receives them."""
    limit: int = 60
    """The maximum number of ``rows``. The template also receives this number, as ``limit``."""
    beside: bool = False
    """Whether the section is in a column beside other sections."""
    card: Callable[[Row], bool] = lambda _: True
    """Returns whether the section has a frame, given the status. A section without content has no frame."""

    @property
    def title(self) -> str:
        """The heading of a section that has no template of its own."""
        return self.name.capitalize()


class LazyObjects:
    """Objects that are imported when they are read. ``names``: the name ``module:name`` of each object, or of an
    iterable of objects."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def __iter__(self) -> Iterator[Any]:
        for name in self._names:
            loaded = imported(name)
            yield from loaded if isinstance(loaded, Iterable) else (loaded,)


class Commands(NamedTuple):
    """What a stream adds to the command line: to `trueup get`, to `trueup describe`, and to `trueup` itself."""

    get: Sequence["Command"] = ()
    describe: Sequence["Command"] = ()
    groups: Sequence["Command"] = ()
    findings: Callable[..., Sequence[Any]] | None = None
    """Returns the columns (`terminal.out.Column`) of `trueup get findings` for a client of the application
    (`terminal.client.Api`). None: the columns that the findings of all streams have."""


class Descriptor(NamedTuple):
    """A stream in the catalog. Only its name and the function that makes it are required."""

    name: str
    make: Callable[["Context"], "Stream | None"]
    """Returns None if the settings do not ask for the stream."""
    todo: str = "declare it in the settings"
    """How an operator starts the stream; part of the error for a stream that does not run."""
    lists: Sequence[Noun] = ()
    things: Sequence[ResourceKind] = ()
    verbs: Sequence[Verb] = ()
    rules: Iterable["Rule"] = ()
    """The rules that its findings and actions name. Findings are stored by position: only append."""
    selectors: Sequence[str] = ()
    """The fields of a `Filter` that its findings understand, apart from verdict and rule."""
    settings: Iterable["Keys[Any]"] = ()
    """The sections of the settings that it reads. Several streams can read the same section."""
    tasks: Callable[["Settings"], int] = lambda _: 0
    """Maximum number of Spark tasks that it occupies permanently."""
    topics: Sequence[JournalTopic] = ()
    """Its topics of the journal, which are declared when the descriptor is imported."""
    commands: Callable[[], Commands] = Commands
    checks: Callable[["Settings"], Iterable["Check"]] = lambda _: ()
    """The checks of `trueup doctor`."""
    metrics: Iterable[Callable[["Metrics"], "StreamMetrics"]] = ()
    page: Sequence[PageSection] = ()
    """Sections of the status page. A stream without any has one with its counts and findings."""
    view: Callable[["Session", "Journal", "Settings"], "View | None"] = lambda _spark, _journal, _settings: None
    """Its query with state, which a standby runs; None if it has none."""
    kinds: Mapping[str, str] = _NONE
    """What each kind of action changes, as the page says it before an approval."""
    fields: str = ""
    """The name ``module:name`` of the class of its fields of the status (`StatusFields`), which compute its part of the
    health and the numbers whose course the page shows; empty: both are computed from its counts."""
    units: Mapping[str, str] = _NONE
    """Units of these numbers by name, for the axes of charts; a number without one has its name."""

    @property
    def fields_class(self) -> type["StatusFields"]:
        """The class that ``fields`` names, imported when it is needed."""
        kind: type[StatusFields] = imported(self.fields)
        return kind

    def signs(self, status: Row) -> Signs:
        """Its part of the health in the status of an application; empty if it only has counts and does not run."""
        if self.fields:
            return self.fields_class.of(status).signs()
        counted = next((subject for subject in status.get("subjects", ()) if subject["name"] == self.name), None)
        return Signs() if counted is None else signs_of(counted)

    def numbers(self, status: Row) -> Mapping[str, float]:
        """The numbers whose course the page shows, in the status of an application that runs the stream."""
        if self.fields:
            return self.fields_class.of(status).trends()
        return next((subject["counts"] for subject in status["subjects"] if subject["name"] == self.name), {})

    def unit(self, name: str) -> str:
        """The unit of one of its `numbers`."""
        return self.units.get(name, name) if self.fields else self.name

    def keys(self, live: Iterable[str], *leaves: str) -> list[str]:
        """Those of these live keys that belong to its settings and whose last part is one of ``leaves``."""
        return [
            key
            for section in self.settings
            for key in live
            if key.startswith(f"{section.name}.") and key.rpartition(".")[2] in leaves
        ]
