"""Rules for names and docstrings of the product. Violations are listed."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

from tests.unit.house.test_tidy import PACKAGES, PLACES, ROOT, shown, sources, trees
from trueup.streams.catalog import STREAMS

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
LOG_CALLS = {"debug", "info", "warning", "error", "exception", "critical"}
SENTENCE = re.compile(r"[:;,]|^(?:the|this) |\b(?:is|are|was|were|it|its)\b")
TOO = re.compile(r", too(?=[.,;:)\"]|$)", re.MULTILINE)
MEANINGS = {
    "state": {"rules.py": r"= Rules\(", "settings.py": r"= key\(", "lifecycle.py": r"^TRANSITIONS\b"},
    "streams": {
        "descriptor.py": r"= Descriptor\(",
        "topics.py": r"^TOPICS = declare\(",
        "stream.py": r"^class \w+\(Stream\)",
        "query.py": r"\bStreamingQuery\b",
        "reconciler.py": r"^class \w+Reconciler\b",
        "signs.py": r"\(StatusFields\)",
        "metrics.py": r"\(StreamMetrics\)",
        "commands.py": r"^COMMANDS = Commands\(",
        "checks.py": r"\bIterator\[Check\]",
    },
}
"""By layer and name of a file: what each file of this name in the folder of a stream contains."""
VAGUE, MOST_VAGUE = {"found", "one", "each", "known", "wanted", "chosen", "made"}, 100
"""Names that do not say what a variable holds. A few are right: ``found`` beside ``expected`` in errors."""
WITHOUT_NOUN = re.compile(r"``[^`]+``(?: and ``[^`]+``)?: (?:of|for|in|to|by|from|with|at|on|as) [^`\n]*")


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    for place, tree in trees(*PACKAGES):
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                yield place, node


def fields(node: ast.ClassDef) -> list[str]:
    return [s.target.id for s in node.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)]


def test_every_class_has_a_name_of_its_own() -> None:
    places = defaultdict(list)
    for place, node in classes():
        places[node.name].append(place)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_fields_are_documented_where_they_are_declared() -> None:
    found = [
        f"{place} {node.name}.{name}"
        for place, node in classes()
        for name in fields(node)
        if re.search(rf"``{name}``(?:, ``| and ``|:)", ast.get_docstring(node) or "")
    ]
    assert found == []


def test_what_a_docstring_describes_is_named_by_a_noun() -> None:
    found = [
        f"{place}: {text}"
        for place, tree in trees(*PACKAGES)
        for node in ast.walk(tree)
        if isinstance(node, Documented)
        for text in WITHOUT_NOUN.findall(ast.get_docstring(node) or "")
    ]
    assert found == []


def test_a_log_event_is_a_noun_and_a_participle() -> None:
    found = [
        f"{place}: {text.value}"
        for place, tree in trees(*PACKAGES)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOG_CALLS
        if isinstance(node.func.value, ast.Name) and node.func.value.id == "log" and node.args
        for text in ast.walk(node.args[0])
        if isinstance(text, ast.Constant) and "%s;" not in text.value
        if " " not in text.value or SENTENCE.search(text.value)
    ]
    assert found == []


def test_no_sentence_ends_in_an_addition() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "Makefile", *sorted((ROOT / "docs").glob("*.md"))]
    found = [shown(path) for path in (*pages, *sources(*PLACES)) if TOO.search(path.read_text())]
    assert found == []


def test_a_file_name_means_the_same_in_every_folder_of_a_stream() -> None:
    found = [
        shown(path)
        for layer, meanings in MEANINGS.items()
        for stream in STREAMS
        for path in sorted((ROOT / layer / stream.name).glob("*.py"))
        if path.name in meanings and not re.search(meanings[path.name], path.read_text(), re.MULTILINE)
    ]
    assert found == []


def test_variables_are_named_after_what_they_hold() -> None:
    vague = [
        f"{place}:{node.lineno}"
        for place, tree in trees(*PACKAGES)
        for node in ast.walk(tree)
        if (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in VAGUE)
        or (isinstance(node, ast.arg) and node.arg in VAGUE)
    ]
    assert len(vague) <= MOST_VAGUE, vague
