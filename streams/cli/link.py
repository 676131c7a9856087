"""trueup link: pause, resume, set back."""

import click

from streams.cli import options, out
from streams.cli.client import Api, segment
from streams.cli.out import Column


@click.group(short_help="Pause, resume or set back a link.")
def link() -> None:
    """Steer a link of the running application. `trueup config set links.NAME.KEY` tunes it.

    \b
    Example:  trueup link pause east-west
    """


@link.command(short_help="Copy nothing more.")
@click.argument("name")
@options.output
@options.api
def pause(api: str, output: str, name: str) -> None:
    """Let link NAME copy nothing until it is resumed. Its partitions stop at the end of their leases, and it lasts over
    restarts. Heartbeats, alignment and groups go on.

    \b
    Example:  trueup link pause east-west
    """
    _set(api, output, name, True)


@link.command(short_help="Go on where it was paused.")
@click.argument("name")
@options.output
@options.api
def resume(api: str, output: str, name: str) -> None:
    """Let link NAME go on where it was paused.

    \b
    Example:  trueup link resume east-west
    """
    _set(api, output, name, False)


def _set(api: str, output: str, name: str, paused: bool) -> None:
    app = Api(api)
    app.get(f"links/{segment(name)}")
    found = app.put(f"config/{segment(f'links.{name}.paused')}", {"value": paused})
    if output == "json":
        out.as_json(found)
    else:
        click.echo(f"{name} is {'paused' if found['value'] else 'resumed'}")


@link.command(short_help="Copy again from another source offset.")
@click.argument("name")
@click.option("--to", required=True, metavar="earliest|latest|OFFSET", help="The source offset to go on at.")
@click.option("--partition", "partitions", metavar="TOPIC-N", multiple=True, help="Only this one. Repeatable.")
@options.output
@options.api
def reset(api: str, output: str, name: str, partitions: tuple[str, ...], to: str) -> None:
    """Let link NAME go on at other source offsets from its next leases on.

    What the target has stays: going back writes records a second time, going forward leaves records out. It is kept in
    the journal and in the history, and `trueup describe link` shows it.

    \b
    Example:  trueup link reset east-west --partition orders-0 --to earliest
    """
    body: dict[str, object] = {"to": to, **({"partitions": list(partitions)} if partitions else {})}
    rows = Api(api).post(f"links/{segment(name)}/reset", body)
    if output == "json":
        out.as_json(rows)
        return
    columns = [Column("PARTITION", lambda r: r["partition"]), Column("OFFSET", lambda r: r["offset"], number=True)]
    out.table(rows, columns, "The link copies nothing yet.")
