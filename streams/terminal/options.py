"""Options that several commands share."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from trueup.state.settings.settings import HttpSettings

Command = TypeVar("Command", bound=Callable[..., Any])


def default_api(env: Mapping[str, str] = os.environ) -> str:
    """URL of the application on this machine, from the settings in the environment or the defaults."""
    http = HttpSettings()
    host = env.get("TRUEUP__HTTP__HOST", http.host)
    return f"http://{'127.0.0.1' if host in ('0.0.0.0', '::') else host}:{env.get('TRUEUP__HTTP__PORT', http.port)}"  # noqa: S104


def api(command: Command) -> Command:
    """--api URL of the running application."""
    return click.option(
        "--api",
        metavar="URL",
        envvar="TRUEUP_API",
        default=default_api,
        help="URL of the running application (TRUEUP_API). [default: http://127.0.0.1:8480]",
    )(command)


def output(command: Command) -> Command:
    """-o table or json."""
    return click.option(
        "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True,
        help="Output format.",
    )(command)  # fmt: skip


def limit(most: int) -> Callable[[Command], Command]:
    """--limit N rows."""
    return click.option(
        "--limit", type=click.IntRange(1, 100_000), default=most, show_default=True, help="Maximum number of rows."
    )


def configuration(command: Command) -> Command:
    """-c FILE and --set KEY=VALUE; `streams.cli.configuration` makes them into settings."""
    command = click.option(
        "--set", "pairs", metavar="KEY=VALUE", multiple=True, help="Set one key, as section.key=value. Repeatable."
    )(command)
    return click.option(
        "-c", "--config", "path", metavar="FILE", envvar="TRUEUP_CONFIG", type=click.Path(path_type=Path),
        help="Configuration file (TRUEUP_CONFIG); see `trueup config reference`.",
    )(command)  # fmt: skip
