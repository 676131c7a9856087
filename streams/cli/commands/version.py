"""trueup version."""

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of

import click

from trueup.streams.terminal import options, out

LIBRARIES = ("pyspark", "kafka-python", "confluent-kafka", "kazoo", "fastavro", "pyarrow", "numpy", "boto3")


@click.command(short_help="Show the versions of Trueup and of its libraries.")
@options.output
def version(output: str) -> None:
    """Show the version of Trueup, of Python and of the libraries that talk to servers. `trueup status -o json` has the
    version of a running application.

    \b
    Example:  trueup version -o json
    """
    found = versions()
    if output == "json":
        out.as_json(found)
    else:
        for name, number in found.items():
            click.echo(f"{name:16} {number}")


def versions() -> dict[str, str]:
    """Versions by name."""
    own = {"trueup": version_of("trueup"), "python": platform.python_version()}
    return own | {name: _installed(name) for name in LIBRARIES}


def _installed(name: str) -> str:
    try:
        return version_of(name)
    except PackageNotFoundError:
        return "not installed"
