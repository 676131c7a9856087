"""Settings with the sections of all streams."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trueup.state.settings import settings
from trueup.state.settings.settings import Settings
from trueup.streams.catalog import sections
from trueup.streams.config import file


def parse(raw: Mapping[str, Any]) -> Settings:
    """Nested mappings as settings."""
    return settings.parse(raw, sections())


def load(path: Path | None, env: Mapping[str, str], flags: Mapping[str, object]) -> Settings:
    """The settings of a file, the environment and flags."""
    return file.load(path, env, flags, sections())


class Effective:
    """Effective settings, read anew for each access."""

    def __init__(self, read: Callable[[], Settings]) -> None:
        self._read = read

    @property
    def now(self) -> Settings:
        return self._read()
