"""The form in which streams report to the API, the page and the command line."""

from typing import Any

Row = dict[str, Any]
"""A JSON object: an item of a list, or the description of a resource. Its values are JSON values."""
