"""The form in which streams report to the API, the page and the command line."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

Row = dict[str, Any]
"""A JSON object: an item of a list, or the description of a resource. Its values are JSON values."""
Names = Mapping[str, str | int]
"""The variables in the path of a resource, such as {"ledger": 7}."""


class RowQuery(NamedTuple):
    """The parameters of a request for the rows of a noun."""

    limit: int = 0
    """The maximum number of rows; 0 if the noun has no such parameter."""
    choices: Mapping[str, str | None] = MappingProxyType({})
    """The parameters in `Noun.choices`; None for one that is not given."""
    bookie: str | None = None
    namespace: str | None = None
