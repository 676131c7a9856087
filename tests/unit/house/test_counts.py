"""Texts with a number and a noun: the number may be 1, and the noun must agree with it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from trueup.state.common.counts import many

REPOSITORY = Path(__file__).parents[3]
NOUNS = (
    "actions|batches|bookies|brokers|changes|chunks|directories|entries|errors|events|files|findings|fields"
    "|fragments|groups|hosts|items|keys|ledgers|links|marks|messages|nodes|objects|offsets|orders|partitions|problems"
    "|queues|racks|reasons|records|replicas|requests|rows|rules|servers|settings|slots|tenants|tokens|topics|words"
)
PLURAL = re.compile(rf" ((?!(?:of|in|and|on|from|to|that|no|not|also|all|existing) )[a-z]+ ){{0,2}}(?:{NOUNS})\b(?!=)")


def counted(path: Path) -> Iterator[str]:
    """The f-strings of a file in which a number that is no constant precedes a plural."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.JoinedStr):
            continue
        for at, part in enumerate(node.values[:-1]):
            text = node.values[at + 1]
            if not isinstance(part, ast.FormattedValue) or not isinstance(text, ast.Constant):
                continue
            before = node.values[at - 1] if at else None
            share = isinstance(before, ast.Constant) and str(before.value).endswith(" of ")
            if number(part) and not share and PLURAL.match(str(text.value)):
                yield f"{path.relative_to(REPOSITORY)}:{node.lineno}: {ast.unparse(node)}"


def number(part: ast.FormattedValue) -> bool:
    """Whether the expression may be a whole number, and neither a constant nor what a function made."""
    if part.format_spec is not None and ast.unparse(part.format_spec).rstrip("'\"")[-1] in "fg":
        return False
    value = part.value
    name = value.attr if isinstance(value, ast.Attribute) else value.id if isinstance(value, ast.Name) else ""
    called = ast.unparse(value.func) if isinstance(value, ast.Call) else ""
    return not name.isupper() and (not called or called in ("len", "sum"))


@pytest.mark.parametrize("layer", ["connectors", "sandbox", "state", "streams"])
def test_a_noun_agrees_with_its_number(layer: str) -> None:
    assert [found for path in sorted((REPOSITORY / layer).rglob("*.py")) for found in counted(path)] == []


@pytest.mark.parametrize(("count", "text"), [(0, "0 ledgers"), (1, "1 ledger"), (1_000, "1,000 ledgers")])
def test_one_is_singular(count: int, text: str) -> None:
    assert many(count, "ledger") == text
