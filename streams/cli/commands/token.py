"""trueup token."""

import secrets

import click

from trueup.state.access.tokens import PREFIX, RANDOM_BYTES, ROLES, line_of


@click.group(short_help="Create tokens for callers of the API.")
def token() -> None:
    """Create tokens for callers of the API.

    \b
    Example:  trueup token new alice --role approver
    """


@token.command(short_help="Create a token.")
@click.argument("name")
@click.option("--role", type=click.Choice(list(ROLES)), required=True, help="What the caller may do.")
def new(name: str, role: str) -> None:
    """Create a token for the caller NAME. Print the token on stdout, and on stderr the line for http.tokens_file, which
    contains only its digest. The token is not stored, and cannot be shown again. A running application reads the file
    when it changes.

    A viewer reads. A reporter also reports damaged replicas. An approver also approves actions, pauses streams and
    releases held repairs. An admin also changes settings, and orders resets, refills and deletions.

    \b
    Example:  trueup token new alice --role approver > token 2>> tokens
    """
    made = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    try:
        line = line_of(name, ROLES[role], made)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="NAME") from None
    click.echo(line, err=True)
    click.echo(made)
