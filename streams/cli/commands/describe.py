"""trueup describe: all details of one resource."""

import click

from trueup.streams.cli.resources import Details


@click.group(cls=Details, short_help="Show the details of a resource.")
def describe() -> None:
    """Show the details of a resource with the evidence for its verdict.

    \b
    Example:  trueup describe ledger 21
    """
