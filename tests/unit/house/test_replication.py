"""Rules for the source code of the replication streams. Violations are listed."""

import ast
import re

import pytest

from tests.unit.house.test_tidy import ROOT, shown, sources, trees

LINK = "streams/replication/links/link.py"
ROOMS = ("state/replication", "streams/replication")
NAMES_SYSTEMS = "streams/replication/clusters.py"
"""Maps each system to its modules: the only module of replication that names systems."""
A_SYSTEM = re.compile(r"kafka|librdkafka|bootstrap|rocketmq|namesrv", re.IGNORECASE)
"""Terms that are specific to one system."""


def own_attributes(source: str, name: str) -> set[str]:
    """Attributes that the methods of a class assign on ``self``."""
    made = next(node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef) and node.name == name)
    return {attribute for receiver, attribute, _ in assigned(made) if receiver == "self"}


def assigned(tree: ast.AST) -> list[tuple[str, str, int]]:
    """Every attribute assignment: object, attribute, line. ``setattr`` counts as any attribute: ``*``."""
    found = [
        (ast.unparse(node.value), node.attr, node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del)
    ]
    return found + [
        (ast.unparse(node.args[0]), "*", node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("setattr", "__setattr__")) and node.args
    ]


def writes_of_links(tree: ast.AST, attributes: set[str]) -> list[int]:
    """Lines that assign an attribute of a link through an object other than ``self``."""
    return [line for receiver, name, line in assigned(tree) if receiver != "self" and name in attributes | {"*"}]


def test_a_link_is_written_by_itself_alone() -> None:
    attributes = own_attributes((ROOT / LINK).read_text(), "Link")
    wrong = [f"{name}:{line}" for name, tree in trees("streams") for line in writes_of_links(tree, attributes)]
    assert (wrong, {"snapshot", "path", "copies"} <= attributes) == ([], True)


def test_another_module_that_writes_a_link_is_seen() -> None:
    text = "self.snapshot = 1\nlink.snapshot = 2\nself._link.path, y = 3, 4\nsetattr(link, 'path', 5)\n"
    assert sorted(writes_of_links(ast.parse(text), {"snapshot", "path"})) == [2, 3, 4]


def of_a_system(text: str) -> list[str]:
    """Lines that contain a term of one system."""
    return [f"{at}: {line.strip()}" for at, line in enumerate(text.splitlines(), 1) if A_SYSTEM.search(line)]


def test_replication_knows_no_system() -> None:
    texts = {shown(path): path.read_text() for path in sources(*ROOMS)}
    assert {name: found for name, text in texts.items() if (found := of_a_system(text))}.keys() == {NAMES_SYSTEMS}


@pytest.mark.parametrize(
    "line",
    [
        "import kafka.errors",
        "from confluent_kafka import OFFSET_END",
        "from trueup.connectors import kafka",
        '"""A Kafka cluster."""',
        "endpoint.bootstrap",
    ],
)
def test_a_line_about_one_system_is_seen(line: str) -> None:
    assert of_a_system(f"x = 1\n{line}\n") == [f"2: {line}"]
