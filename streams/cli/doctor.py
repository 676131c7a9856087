"""trueup doctor."""

import click


@click.command(short_help="x")
def doctor() -> None:
    """x"""
