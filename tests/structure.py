"""Draws docs/structure.md, the packages of each layer and the imports between them: `python -m tests.structure`."""

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import grimp

PAGE = Path(__file__).parents[1] / "docs" / "structure.md"
PACKAGE = "trueup"
FLOORS = ("sandbox", "streams", "connectors", "state")
HEAD = """# Structure

Generated from the imports by `python -m tests.structure`; a test compares. An arrow points from the importer to what it
imports. Installed, all is one package, `trueup`; its folders are at the top of the repository.
"""


def page() -> str:
    """The whole page."""
    graph = grimp.build_graph(PACKAGE)
    parts = [HEAD, *(_floor(graph, floor) for floor in FLOORS)]
    return "\n".join(parts)


def _floor(graph: grimp.ImportGraph, floor: str) -> str:
    """One layer: its packages with their modules, and the imports between them."""
    name = f"{PACKAGE}.{floor}"
    rooms = [*_rooms(name)]
    table = ["| room | holds |", "|---|---|"]
    table += [f"| `{_short(room)}` | {_about(room)} |" for room in rooms]
    arrows = sorted({(a, b) for a, b in _imports(graph, name) if a != b and {a, b} <= set(rooms)})
    drawn = ["```mermaid", "graph TD", *(f"  {_short(a)} --> {_short(b)}" for a, b in arrows), "```"]
    return "\n".join([f"## {floor}/\n", _about(name), "", *table, "", *(drawn if arrows else ()), ""])


def _rooms(package: str) -> Iterator[str]:
    paths = importlib.import_module(package).__path__
    return (found.name for found in pkgutil.iter_modules(paths, f"{package}.") if found.ispkg)


def _imports(graph: grimp.ImportGraph, floor: str) -> Iterator[tuple[str, str]]:
    """Importing and imported package of each import inside a layer."""
    for importer in graph.find_descendants(floor):
        for imported in graph.find_modules_directly_imported_by(importer):
            if imported.startswith(f"{floor}."):
                yield _room(importer), _room(imported)


def _room(module: str) -> str:
    return ".".join(module.split(".")[:3])


def _about(module: str) -> str:
    """The first paragraph of the module's docstring, in one line."""
    return " ".join((importlib.import_module(module).__doc__ or "").split("\n\n")[0].split())


def _short(room: str) -> str:
    return room.rsplit(".", 1)[1]


if __name__ == "__main__":
    PAGE.write_text(page())
