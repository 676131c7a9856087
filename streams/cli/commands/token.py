"""trueup token."""

import os
import secrets
import stat
import sys
from pathlib import Path

import click

from trueup.state.common.errors import Stop
from trueup.state.settings.tokens import PREFIX, RANDOM_BYTES, ROLES, line_of


@click.group(short_help="Create tokens for callers of the API.")
def token() -> None:
    """Create tokens for callers of the API.

    \b
    Example:  trueup token new alice --role approver
    """


@token.command(short_help="Create a token.")
@click.argument("name")
@click.option("--role", type=click.Choice(list(ROLES)), required=True, help="What the caller may do.")
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the token to this new file, which only you can read, and its line to stdout.",
)
def new(name: str, role: str, out: Path | None) -> None:
    """Create a token for the caller NAME, and its line for http.tokens_file, which contains only the token's digest.
    The token is not stored elsewhere, and cannot be shown again. A running application reads http.tokens_file when it
    changes.

    Without --out, the token is printed on stdout and the line on stderr. A file that other users may read is refused as
    stdout.

    A viewer reads. A reporter also reports damaged replicas. An approver also approves actions, pauses streams and
    releases held repairs. An admin also changes settings, and orders resets, refills and deletions.

    \b
    Example:  trueup token new alice --role approver --out alice.token >> tokens
    """
    secret = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    try:
        line = line_of(name, ROLES[role], secret)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="NAME") from None
    if out is None:
        _check_private()
        click.echo(line, err=True)
        click.echo(secret)
        return
    try:
        with open(out, "x", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(f"{secret}\n")
    except OSError as error:
        raise Stop(f"a new file {out}", str(error.strerror), "name another file with --out") from error
    click.echo(line)


def _check_private() -> None:
    """Raises `Stop` if stdout is a file that other users may read."""
    try:
        mode = os.fstat(sys.stdout.fileno()).st_mode
    except (OSError, ValueError):  # no file
        return
    if stat.S_ISREG(mode) and mode & 0o077:
        raise Stop(
            "a terminal, a pipe or a private file as stdout", f"a file with mode {mode & 0o777:o}", "use --out FILE"
        )
