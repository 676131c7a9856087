"""Procedures of the manual, for tests that carry them out word by word."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def section(page: str, title: str) -> str:
    """The text below a heading of a page of docs."""
    return (DOCS / page).read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]


def steps(page: str, title: str) -> list[str]:
    """The numbered steps of a section, each on one line."""
    found = re.findall(r"^\d+\. (.*?)(?=^\d+\. |\n\n|\Z)", section(page, title), re.MULTILINE | re.DOTALL)
    return [" ".join(step.split()) for step in found]
