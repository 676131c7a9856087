"""Options that several commands share."""

import os
import re
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from trueup.state.common.errors import BadSettings
from trueup.state.settings.roles import HOST, LONGEST_JWT, PORT
from trueup.streams.terminal import out
from trueup.streams.terminal.client import ApiTarget

Command = TypeVar("Command", bound=Callable[..., object])


def default_api(env: Mapping[str, str] = os.environ) -> str:
    """URL of the application on this machine, from the settings in the environment or the defaults."""
    scheme = "https" if env.get("TRUEUP__HTTP__TLS_CERTIFICATE") else "http"
    host = env.get("TRUEUP__HTTP__HOST", HOST)
    return f"{scheme}://{'127.0.0.1' if host in ('0.0.0.0', '::') else host}:{env.get('TRUEUP__HTTP__PORT', PORT)}"  # noqa: S104


def api(command: Command) -> Command:
    """--api URL of the running application, with --token-file and --ca. The command receives an `ApiTarget`."""
    return _target(
        command,
        "api",
        click.option(
            "--api",
            metavar="URL",
            envvar="TRUEUP_API",
            default=default_api,
            help="URL of the running application (TRUEUP_API). [default: http://127.0.0.1:8480]",
        ),
    )


def report_to(command: Command) -> Command:
    """--report-to URL of a running application, with --token-file and --ca. The command receives an `ApiTarget`, whose
    URL is empty without the option."""
    return _target(
        command,
        "report_to",
        click.option(
            "--report-to",
            metavar="URL",
            default="",
            help="API of a running Trueup that receives reports of damaged replicas.",
        ),
    )


def _target(command: Command, name: str, url: Callable[[Command], Command]) -> Command:
    """The option ``url``, --token-file and --ca. The command receives an `ApiTarget` with this name."""

    @wraps(command)
    def targeted(*args: object, token_file: Path | None, ca: str, **options: object) -> object:
        address = str(options.pop(name))
        target = ApiTarget(address, token_of(token_file) if address else "", ca)
        return command(*args, **options, **{name: target})

    wrapped: Any = targeted
    for option in (
        click.option(
            "--ca",
            metavar="FILE",
            envvar="TRUEUP_CA",
            default="",
            help="PEM file of the authorities of the application's certificate (TRUEUP_CA).",
        ),
        click.option(
            "--token-file",
            metavar="FILE",
            type=click.Path(path_type=Path),
            help="File with the token to send (TRUEUP_TOKEN_FILE, or the token itself in TRUEUP_TOKEN).",
        ),
        url,
    ):
        wrapped = option(wrapped)
    return cast("Command", wrapped)


def token_of(path: Path | None, env: Mapping[str, str] = os.environ) -> str:
    """The token in this file, in TRUEUP_TOKEN, or in the file TRUEUP_TOKEN_FILE; empty without any. Raises
    `BadSettings` for a file that holds no token."""
    if path is None and (token := env.get("TRUEUP_TOKEN", "").strip()):
        return _sendable(token, "TRUEUP_TOKEN")
    name = "--token-file" if path else "TRUEUP_TOKEN_FILE"
    if not (place := path or env.get("TRUEUP_TOKEN_FILE")):
        return ""
    try:
        with Path(place).open("rb") as file:
            content = file.read(LONGEST_JWT + 2)
    except OSError as error:
        raise BadSettings([f"{name}: expected a readable file with a token; found {place}: {error.strerror}"]) from None
    return _sendable(content.decode("ascii", "replace").strip(), f"{name} {place}")


def _sendable(token: str, where: str) -> str:
    if not re.fullmatch(rf"[!-~]{{1,{LONGEST_JWT}}}", token):
        raise BadSettings([f"{where}: expected one token without spaces; found something else"])
    return token


def target_of(url: str, token_file: Path | None = None) -> ApiTarget:
    """The application at this URL, with the token of this file or of the environment. Raises `BadSettings`."""
    return ApiTarget(url, token_of(token_file), os.environ.get("TRUEUP_CA", ""))


def output(command: Command) -> Command:
    """-o table or json."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="Output format.",
    )(command)


def formats(command: Command) -> Command:
    """-o table, wide, json, yaml or name."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "wide", "json", "yaml", "name"]),
        default="table",
        show_default=True,
        help="Output format; wide: nothing is shortened, name: the first column alone.",
    )(command)


def listing(command: Command) -> Command:
    """-o table, wide, json, yaml or name, and --watch, of a command that prints a list by `out.listing`."""

    @wraps(command)
    def watched(*args: object, watch: bool, interval: float, **options: object) -> object:
        if watch:
            return out.watch(lambda: command(*args, **options), interval)
        return command(*args, **options)

    wrapped: Any = watched
    for option in (
        click.option(
            "--interval",
            metavar="SECONDS",
            type=click.FloatRange(0.1, 3_600),
            default=2.0,
            show_default=True,
            help="Time between two requests of --watch.",
        ),
        click.option(
            "-w",
            "--watch",
            is_flag=True,
            help="List again until interrupted. Without a terminal only lines that are new are printed.",
        ),
        formats,
    ):
        wrapped = option(wrapped)
    return cast("Command", wrapped)


def limit(most: int) -> Callable[[Command], Command]:
    """--limit N rows."""
    return click.option(
        "--limit", type=click.IntRange(1, 100_000), default=most, show_default=True, help="Maximum number of rows."
    )


def bookie(command: Command) -> Command:
    """--bookie ID."""
    return click.option("--bookie", metavar="ID", help="Show only ledgers that this bookie holds or should hold.")(
        command
    )


def namespace(command: Command) -> Command:
    """--namespace TENANT/NAMESPACE."""
    return click.option(
        "--namespace", metavar="TENANT/NAMESPACE", help="Show only what belongs to topics of this Pulsar namespace."
    )(command)


def configuration(command: Command) -> Command:
    """-c FILE and --set KEY=VALUE; `streams.cli.configuration` makes them into settings."""
    command = click.option(
        "--set", "pairs", metavar="KEY=VALUE", multiple=True, help="Set one key, as section.key=value. Repeatable."
    )(command)
    return click.option(
        "-c",
        "--config",
        "path",
        metavar="FILE",
        envvar="TRUEUP_CONFIG",
        type=click.Path(path_type=Path),
        help="Configuration file (TRUEUP_CONFIG); see `trueup config reference`.",
    )(command)
