"""Objects of modules that are imported when they are needed."""

from importlib import import_module
from typing import Any


def imported(name: str) -> Any:
    """Import the object ``module:name``."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
