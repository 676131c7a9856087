"""What others say about a caller: the claims of a token, and the headers of a proxy."""

from collections.abc import Collection, Mapping
from typing import Any

from trueup.state.settings.roles import Role
from trueup.state.settings.tokens import ROLES

LONGEST_NAME, MOST_VALUES = 128, 1_000
ANYONE = "*"
"""In a table of roles: every caller."""


def name_of(value: object) -> str:
    """A name that can be shown: at most `LONGEST_NAME` printable characters without spaces and commas; else empty."""
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_NAME:
        return ""
    return value if value.isprintable() and not {" ", ","} & {*value} else ""


def values_of(claims: Mapping[str, Any], path: str) -> list[str]:
    """The texts of a claim: of a list, or of a text with spaces in between. ``path``: its name, or names of nested
    objects with dots in between; a claim whose name has dots is also found."""
    claim: object = claims.get(path)
    if claim is None:
        claim = claims
        for name in path.split("."):
            claim = claim.get(name) if isinstance(claim, Mapping) else None
    if isinstance(claim, str):
        return claim.split()[:MOST_VALUES]
    return [text for text in claim[:MOST_VALUES] if isinstance(text, str)] if isinstance(claim, list) else []


def role_of(values: Collection[str], roles: Mapping[str, str]) -> Role | None:
    """The highest role of these values; None without one."""
    given = [ROLES[role] for value, role in roles.items() if value == ANYONE or value in values]
    return max(given, default=None)
