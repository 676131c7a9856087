"""trueup run."""

from pathlib import Path

import click

from trueup.streams.cli import configuration
from trueup.streams.runtime.logs import FORMS, LEVELS
from trueup.streams.terminal import options


@click.command(short_help="Run Trueup.")
@options.configuration
@click.option(
    "--log-level",
    "level",
    type=click.Choice(LEVELS),
    default="info",
    show_default=True,
    help="Log level of Trueup's log on stderr.",
)
@click.option(
    "--log-format",
    "form",
    type=click.Choice(FORMS),
    default=FORMS[0],
    show_default=True,
    help="Format of Trueup's log: text, or one JSON object per line, with an event for each executed action.",
)
def run(path: Path | None, pairs: tuple[str, ...], level: str, form: str) -> None:
    """Run Trueup until SIGTERM or Ctrl-C.

    Requires one setting, cluster.zookeeper (not for links and log directories). Starts in mode observe and changes
    nothing until an operator sets placement.mode to approve or enforce. The status page and the API listen on http.host
    and http.port, 127.0.0.1:8480 by default. Other machines are served only if callers have tokens (http.tokens_file).

    \b
    Example:  trueup run -c conf/trueup.yaml --set cluster.zookeeper=zk1:2181
    """
    settings = configuration.settings(path, pairs)
    from trueup.streams import app

    app.run(settings, level, form)
