"""What the replication streams promise about their own text. Offenders are printed."""

import ast

from tests.unit.house.test_tidy import ROOT, trees

LINK = "streams/replication/link.py"


def own_attributes(source: str, name: str) -> set[str]:
    """What the methods of a class assign on ``self``."""
    made = next(node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef) and node.name == name)
    return {attribute for receiver, attribute, _ in assigned(made) if receiver == "self"}


def assigned(tree: ast.AST) -> list[tuple[str, str, int]]:
    """Every assignment of an attribute: of what, its name, its line. ``setattr`` assigns any attribute: ``*``."""
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
    """Lines that assign an attribute which a link has, of anything but ``self``."""
    return [line for receiver, name, line in assigned(tree) if receiver != "self" and name in attributes | {"*"}]


def test_a_link_is_written_by_itself_alone() -> None:
    attributes = own_attributes((ROOT / LINK).read_text(), "Link")
    wrong = [f"{name}:{line}" for name, tree in trees("streams") for line in writes_of_links(tree, attributes)]
    assert (wrong, {"snapshot", "path", "copies"} <= attributes) == ([], True)


def test_another_module_that_writes_a_link_is_seen() -> None:
    text = "self.snapshot = 1\nlink.snapshot = 2\nself._link.path, y = 3, 4\nsetattr(link, 'path', 5)\n"
    assert sorted(writes_of_links(ast.parse(text), {"snapshot", "path"})) == [2, 3, 4]
