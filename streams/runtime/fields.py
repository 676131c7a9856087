"""The fields that a stream adds to the JSON of the status, as a frozen dataclass of the stream.

The application converts them to JSON. The page, `/metrics` and the command line read them from the JSON.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import cache
from typing import Self, TypeVar, get_args, get_type_hints

from trueup.state.settings.settings import Settings
from trueup.streams.rows import Row
from trueup.streams.runtime.signs import Signs

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StatusFields(ABC):
    """The fields of one stream. Their names are those of the JSON."""

    @classmethod
    def of(cls, status: Row) -> Self:
        """The fields in the status of an application (`streams.web.engine.Engine.status`)."""
        return read(cls, status)

    @classmethod
    def absent(cls, settings: Settings) -> Self:  # noqa: ARG003 - for streams that show settings
        """The fields while the stream does not run."""
        return cls()

    def json(self) -> Row:
        """The fields of the JSON."""
        return asdict(self)

    @abstractmethod
    def signs(self) -> Signs:
        """The part of the stream in the health."""

    @abstractmethod
    def trends(self) -> Mapping[str, float]:
        """The numbers whose course the page shows. See `streams.runtime.signs.Total`."""


def read(kind: type[T], row: Row) -> T:
    """A dataclass from the fields of a JSON object that have the names of its fields. Fields are dataclasses, sequences
    of them, or JSON values. Raises `TypeError` if a field without a default is missing."""
    assert is_dataclass(kind), "a JSON object is read into a dataclass"
    hints = _hints(kind)
    return kind(
        **{member.name: _value(hints[member.name], row[member.name]) for member in fields(kind) if member.name in row}
    )


@cache  # rows are read at each scrape
def _hints(kind: type) -> Mapping[str, object]:
    """The types of the fields of a dataclass."""
    return get_type_hints(kind)


def _value(hint: object, value: object) -> object:
    """``value`` as a field with this type. Only dataclasses need a conversion."""
    kind = next((part for part in (hint, *get_args(hint)) if is_dataclass(part)), None)
    if not isinstance(kind, type) or value is None:
        return value
    return [read(kind, entry) for entry in value] if isinstance(value, list | tuple) else read(kind, value)  # type: ignore[arg-type]
