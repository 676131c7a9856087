"""The resources that have a page, and which of them a row concerns."""

from collections.abc import Iterator
from urllib.parse import quote

from trueup.streams.catalog import STREAMS
from trueup.streams.rows import Names, Row
from trueup.streams.runtime.descriptor import Descriptor, ResourceKind


def with_page() -> Iterator[tuple[Descriptor, ResourceKind]]:
    """The resources that have a page, with their stream."""
    return ((stream, thing) for stream in STREAMS for thing in stream.things if thing.names is not None)


def concerns(thing: ResourceKind, row: Row, names: Names) -> bool:
    """Whether a row concerns the resource with these names."""
    row_names = thing.names(row) if thing.names else None
    return row_names is not None and {**row_names} == {**names}


def address(row: Row) -> str:
    """The page of the first resource that a row concerns; empty if there is none."""
    return page[0] if (page := page_and_title(row)) else ""


def page_and_title(row: Row) -> tuple[str, str] | None:
    """The same page, and the resource in words."""
    for _, thing in with_page():
        if thing.names and (names := thing.names(row)):
            return page_of(thing, names), title(thing, names)
    return None


def page_of(thing: ResourceKind, names: Names) -> str:
    """The address of the page of a resource."""
    parts = []
    for part in thing.path.split("/"):
        kind, _, name = part.strip("<>").rpartition(":") if part.startswith("<") else ("", "", "")
        parts.append(quote(str(names[name]), safe="/" if kind == "path" else "") if name else part)
    return "/" + "/".join(parts)


def title(thing: ResourceKind, names: Names) -> str:
    """The resource in words: ledger 7, broker east/1."""
    return f"{thing.name} {'/'.join(str(value) for value in names.values())}"
