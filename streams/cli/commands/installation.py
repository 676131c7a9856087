"""trueup version, trueup files: what is installed."""

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from importlib.resources import files as resources
from pathlib import Path

import click

from trueup.streams.terminal import options, out

LIBRARIES = ("pyspark", "kafka-python", "confluent-kafka", "kazoo", "fastavro", "pyarrow", "numpy", "boto3")
FILES = {
    "alerts": "conf/prometheus/alerts.yml",
    "boards": "conf/grafana",
    "configuration": "conf/trueup.yaml",
    "docs": "docs",
    "helm": "conf/helm/trueup",
    "kubernetes": "conf/kubernetes",
    "systemd": "conf/systemd",
}
"""Path below the package by name. In a checkout, the package contains links to the folders."""


@click.command(short_help="Show the versions of Trueup and of its libraries.")
@options.output
def version(output: str) -> None:
    """Show the version of Trueup, of Python and of the libraries that talk to servers. `trueup status -o json` has the
    version of a running application.

    \b
    Example:  trueup version -o json
    """
    numbers = versions()
    if output == "json":
        out.as_json(numbers)
    else:
        for name, number in numbers.items():
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


@click.command(short_help="Show where boards, alerts, manifests and docs are.")
@click.argument("name", required=False, type=click.Choice(list(FILES)))
@options.output
def files(name: str | None, output: str) -> None:
    """Show where this installation has its boards for Grafana, its alerts for Prometheus, the manifests and the Helm
    chart for Kubernetes, the unit for systemd, the reference of the configuration, and these docs. With NAME, print
    only its path.

    \b
    Example:  cp "$(trueup files boards)"/*.json /var/lib/grafana/dashboards/trueup/
    """
    places = {key: str(path) for key, path in paths().items() if name in (None, key)}
    if output == "json":
        out.as_json(places)
    elif name:
        click.echo(places[name])
    else:
        for label, path in places.items():
            click.echo(f"{label:14} {path}")


def paths() -> dict[str, Path]:
    """Absolute path by name."""
    package = Path(str(resources("trueup")))
    return {name: package / path for name, path in FILES.items()}
