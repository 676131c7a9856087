"""trueup files: where the files for operators are."""

from importlib.resources import files as resources
from pathlib import Path

import click

from trueup.streams.terminal import options, out

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
    found = {known: str(path) for known, path in paths().items() if name in (None, known)}
    if output == "json":
        out.as_json(found)
    elif name:
        click.echo(found[name])
    else:
        for known, path in found.items():
            click.echo(f"{known:14} {path}")


def paths() -> dict[str, Path]:
    """Absolute path by name."""
    package = Path(str(resources("trueup")))
    return {name: package / path for name, path in FILES.items()}
