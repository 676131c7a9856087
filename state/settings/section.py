"""Sections of the settings: a dataclass of keys, or a table with such a dataclass for each of its entries.

The application declares its own in `state.settings.settings`, and every stream those that it reads.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import Field, dataclass, field
from typing import Any, Generic, TypeVar

from trueup.state.common.options import build, build_table, hints_of, keys_of

T = TypeVar("T")


def _sound(*_: object) -> Iterable[str]:
    """No problems. A function with a name, because settings are pickled for other processes."""
    return ()


@dataclass(frozen=True, slots=True, eq=False)
class Section(Generic[T]):
    """A section of the settings. Streams that read the same section declare the same object."""

    name: str
    keys: type[T]
    """Dataclass of the section, or of each entry of a table."""
    entries: tuple[str, ...] = ()
    """For a table: entries in the reference, the name of the first and lines with others. Empty if it is no table."""
    examples: Mapping[str, str] = field(default_factory=dict)
    """Values in the reference, by key, for keys without a useful default."""
    complete: bool = False
    """Whether a configuration with this section needs no BookKeeper cluster."""
    check: Callable[["Draft"], Iterable[str]] = _sound
    """The problems of the section, also in combination with other sections."""
    check_entry: Callable[[str, T, "Draft"], Iterable[str]] = _sound
    """The problems of one entry of a table by itself, for a live change."""
    check_env: Callable[["Draft", Mapping[str, str]], Iterable[str]] = _sound
    """The problems of references to environment variables."""

    def build(self, raw: Any, problems: list[str]) -> Any:
        """The section as typed values. Problems are added to ``problems``; sections and entries with any are None."""
        builder = build_table if self.entries else build
        return builder(self.keys, raw, f"{self.name}.", problems)

    def leaves(self, entry: str = "") -> Iterator[tuple[str, Field[Any], Any]]:
        """Full name, field and type of every key. ``entry``: the name of an entry, for a table."""
        path, hints = f"{self.name}.{entry}." if entry else f"{self.name}.", hints_of(self.keys)
        return ((path + spec.name, spec, hints[spec.name]) for spec in keys_of(self.keys))


Sections = Mapping[Section[Any], Any]
"""Sections with their values: an object, or objects by name."""


def value_in(sections: Sections, keys: type[Any], table: bool) -> Any:
    """The value of the section, or of the table, with this dataclass. Raises `LookupError` if it is not declared."""
    for section, value in sections.items():
        if section.keys is keys and bool(section.entries) is table:
            return value
    raise LookupError(f"the settings declare no {'table' if table else 'section'} of {keys.__name__}")


@dataclass(frozen=True, slots=True)
class Draft:
    """Settings during validation. Sections and entries that are invalid by themselves are None."""

    sections: Sections

    def section(self, keys: type[T]) -> T | None:
        """The section with this dataclass."""
        value: T | None = value_in(self.sections, keys, table=False)
        return value

    def table(self, keys: type[T]) -> Mapping[str, T | None]:
        """The entries of the table with this dataclass, by name."""
        return value_in(self.sections, keys, table=True) or {}
