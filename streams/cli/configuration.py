"""Loads the settings from the options -c and --set of a command."""

import os
from pathlib import Path

import click

from trueup.state.settings.settings import Settings
from trueup.streams.catalog import sections


def settings(path: Path | None, pairs: tuple[str, ...]) -> Settings:
    """The resulting settings. Raises `BadSettings`, and `UsageError` for an invalid pair."""
    from trueup.streams.config.file import load

    flags: dict[str, object] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--set: expected section.key=value; found {pair!r}")
        flags[name] = value
    return load(path, os.environ, flags, sections())
