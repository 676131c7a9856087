"""Draws docs/structure.md, the packages of each layer and the imports between them: `python -m tests.structure`."""

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import grimp

PAGE = Path(__file__).parents[1] / "docs" / "structure.md"
PACKAGE = "trueup"
FLOORS = ("sandbox", "streams", "connectors", "state")
FORMS = (
    ("a record batch, not opened", "a leader of the source, on path `batches`", "a leader of the target", ""),
    (
        "`Packed`",
        "readers of Kafka, and of RocketMQ for a target of another system",
        "any writer",
        "connectors.replication.packed",
    ),
    (
        "`NativeRows`",
        "the reader of RocketMQ, for a target of RocketMQ",
        "the writer of RocketMQ",
        "connectors.rocketmq.replication.records.native",
    ),
    (
        "`Columns`",
        "every reader, for records without one of these forms, and the pump, for a transform",
        "any writer",
        "connectors.replication.ports",
    ),
    ("`EncodedBatch`", "the writer of Kafka", "a produce request", "connectors.kafka.replication.records.encode"),
    ("`MessageBatch`", "the writer of RocketMQ", "a request to store", "connectors.rocketmq.protocol.batch"),
)
"""The forms of records between the stops of a link: who makes them, who takes them, and where each is declared."""
HEAD = """# Structure

Generated from the imports by `python -m tests.structure`; a test compares. An arrow points from the importer to what it
imports. Installed, all is one package, `trueup`; its folders are at the top of the repository.
"""


def page() -> str:
    """The whole page."""
    graph = grimp.build_graph(PACKAGE)
    parts = [HEAD, _whole(graph), *(_floor(graph, floor) for floor in FLOORS), _forms()]
    return "\n".join(parts)


def _whole(graph: grimp.ImportGraph) -> str:
    """The layers, with the number of rooms of the upper one that import the lower one."""
    arrows = []
    for at, upper in enumerate(FLOORS):
        for lower in FLOORS[at + 1 :]:
            pairs = _across(graph, f"{PACKAGE}.{upper}", f"{PACKAGE}.{lower}")
            if rooms := {importer for importer, _ in pairs}:
                arrows.append(f"  {upper} -- {len(rooms)} --> {lower}")
    text = "The layers. The number at an arrow is that of the parts of the upper layer that import the lower one."
    return "\n".join(["## The whole", "", text, "", "```mermaid", "graph TD", *arrows, "```", ""])


def _across(graph: grimp.ImportGraph, upper: str, lower: str) -> Iterator[tuple[str, str]]:
    """Importing and imported part of each import of one layer in another, or in itself."""
    for importer in graph.find_descendants(upper):
        for imported in graph.find_modules_directly_imported_by(importer):
            if imported.startswith(f"{lower}."):
                yield _room(importer), _room(imported)


def _forms() -> str:
    """The forms of records, with the module of each."""
    rows = [f"| {form} | {maker} | {taker} | {_declared(form, place)} |" for form, maker, taker, place in FORMS]
    head = ["## Records on their way", "", "What a link copies has these forms between its stops."]
    return "\n".join([*head, "", "| form | made by | taken by | declared in |", "|---|---|---|---|", *rows, ""])


def _declared(form: str, place: str) -> str:
    """The module that declares a form; raises AttributeError if it does not."""
    if not place:
        return ""
    getattr(importlib.import_module(f"{PACKAGE}.{place}"), form.strip("`"))
    return f"`{place}`"


def _floor(graph: grimp.ImportGraph, floor: str) -> str:
    """One layer: its packages with their modules, and the imports between them."""
    name = f"{PACKAGE}.{floor}"
    rooms = [*_rooms(name)]
    table = ["| room | holds |", "|---|---|"]
    table += [f"| `{_short(room)}` | {_about(room)} |" for room in rooms]
    arrows = sorted({(a, b) for a, b in _across(graph, name, name) if a != b and {a, b} <= set(rooms)})
    drawn = ["```mermaid", "graph TD", *(f"  {_short(a)} --> {_short(b)}" for a, b in arrows), "```"]
    return "\n".join([f"## {floor}/\n", _about(name), "", *table, "", *(drawn if arrows else ()), ""])


def _rooms(package: str) -> Iterator[str]:
    paths = importlib.import_module(package).__path__
    return (found.name for found in pkgutil.iter_modules(paths, f"{package}.") if found.ispkg)


def _room(module: str) -> str:
    return ".".join(module.split(".")[:3])


def _about(module: str) -> str:
    """The first paragraph of the module's docstring, in one line."""
    return " ".join((importlib.import_module(module).__doc__ or "").split("\n\n")[0].split())


def _short(room: str) -> str:
    return room.rsplit(".", 1)[1]


if __name__ == "__main__":
    PAGE.write_text(page())
