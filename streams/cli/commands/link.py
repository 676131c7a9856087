"""trueup link: pause, resume, set back, refill."""

import time

import click

from trueup.state.common.errors import Refused
from trueup.state.common.patterns import matches
from trueup.streams.cli import codes, options, out
from trueup.streams.cli.options import Command
from trueup.streams.cli.out import Column, Row
from trueup.streams.runtime.format import many, size
from trueup.streams.web.client import Api, segment

LOOK_S = 0.5
FEW = 10
"""Partitions of a reset that are printed."""
REFILLED = (
    Column("TOPIC", lambda r: r["target_topic"]),
    Column("PARTITIONS", lambda r: r["partitions"], number=True),
    Column("RECORDS", lambda r: r["records"], number=True),
    Column("BYTES", lambda r: size(r["bytes"]) if r["bytes"] >= 0 else "", number=True),
    Column("STAGE", lambda r: r["stage"]),
    Column("REASON", lambda r: r["reason"], clips=True),
)


@click.group(short_help="Pause, resume, reset or refill a link.")
def link() -> None:
    """Control a link of the running application. To change its settings, use `trueup config set links.NAME.KEY VALUE`.

    \b
    Example:  trueup link pause east-west
    """


def _topics(command: Command) -> Command:
    return click.option(
        "--topic", "topics", metavar="TOPIC", multiple=True, help="Name of a source topic. Repeatable."
    )(command)


@link.command(short_help="Pause a link.")
@click.argument("name")
@_topics
@options.output
@options.api
def pause(api: str, output: str, name: str, topics: tuple[str, ...]) -> None:
    """Pause link NAME, or some of its topics, until it is resumed. Its partitions stop at the end of their leases. The
    pause survives restarts. Heartbeats, alignment and groups continue.

    \b
    Examples:  trueup link pause east-west
               trueup link pause east-west --topic orders
    """
    _set(api, output, name, topics, True)


@link.command(short_help="Resume a paused link.")
@click.argument("name")
@_topics
@options.output
@options.api
def resume(api: str, output: str, name: str, topics: tuple[str, ...]) -> None:
    """Resume link NAME, or some of its topics.

    \b
    Examples:  trueup link resume east-west
               trueup link resume east-west --topic orders
    """
    _set(api, output, name, topics, False)


def _set(api: str, output: str, name: str, topics: tuple[str, ...], paused: bool) -> None:
    app = Api(api)
    known = {row["topic"] for row in app.get(f"links/{segment(name)}")["by_topic"]}
    if strange := sorted(set(topics) - known):
        raise Refused(f"topics of link {name}", ", ".join(strange), f"look at `trueup describe link {name}`")
    key = f"links.{name}.paused_topics" if topics else f"links.{name}.paused"
    value = _paused(app.get("config")["live"][key]["value"], topics, paused) if topics else paused
    found = app.put(f"config/{segment(key)}", {"value": value})
    if output == "json":
        out.as_json(found)
        return
    for what in topics or (name,):
        click.echo(f"{what} is {'paused' if paused else 'resumed'}")


def _paused(patterns: list[str], topics: tuple[str, ...], paused: bool) -> list[str]:
    """The topics that are paused from now on. Raises `Refused` for one that an expression pauses."""
    left = [pattern for pattern in patterns if pattern not in topics]
    if paused:
        return [*left, *topics]
    if held := sorted(topic for topic in topics if matches(left, topic)):
        todo = "set links.NAME.paused_topics without the expression"
        raise Refused("topics that are paused by name", f"{', '.join(held)}, paused by {', '.join(left)}", todo)
    return left


@link.command(short_help="Continue at a different source offset.")
@click.argument("name")
@click.option(
    "--to", required=True, metavar="earliest|latest|OFFSET", help="Source offset at which the link continues."
)
@click.option(
    "--partition", "partitions", metavar="TOPIC-N", multiple=True, help="Reset only this partition. Repeatable."
)
@options.output
@options.api
def reset(api: str, output: str, name: str, partitions: tuple[str, ...], to: str) -> None:
    """Set the source offsets at which link NAME continues with its next leases.

    Records at the target are not changed: an earlier offset duplicates records, a later offset skips records. The reset
    is stored in the journal and in the history, and `trueup describe link` shows it.

    \b
    Example:  trueup link reset east-west --partition orders-0 --to earliest
    """
    body: dict[str, object] = {"to": to, **({"partitions": list(partitions)} if partitions else {})}
    rows = Api(api).post(f"links/{segment(name)}/reset", body)
    if output == "json":
        out.as_json(rows)
        return
    if not rows:
        click.echo("The link copies nothing yet.")
        return
    click.echo(f"{many(len(rows), 'partition')} of {name} to go on at {to}:")
    for row in rows[:FEW]:
        click.echo(f"  {row['partition']} at {row['offset']:,}")
    if len(rows) > FEW:
        click.echo(f"  and {len(rows) - FEW:,} more: trueup describe link {name}")


@link.command(short_help="Restore the data of a target that lost it.")
@click.argument("name")
@click.option("--yes", "certain", is_flag=True, help="Execute the refill. Without --yes it is only shown.")
@click.option(
    "--wait", "wait_s", type=click.FloatRange(0), default=60.0, show_default=True, metavar="SECONDS",
    help="Maximum time to wait for leases to end and topics to be created.",
)  # fmt: skip
@options.output
@options.api
def refill(api: str, output: str, name: str, certain: bool, wait_s: float) -> int:
    """Copy to the target of link NAME everything that its source holds now, including records that originated at the
    target. Use this command for a cluster that returned without its data, and for lost topics.

    It applies to topics that were deleted or recreated at the target since the link wrote to them, and to partitions
    that are empty there. Each record is copied once, in order; new records follow. The opposite link restarts in the
    new topics and skips the refilled records. RECORDS is a number of offsets.

    Exits with 0 when everything is being copied or nothing is left to do, with 3 without --yes, with 4 if some topics
    are still waiting, and with 5 if there is nothing to refill or some topics are blocked.

    \b
    Example:  trueup link refill west-east --yes
    """
    app, path = Api(api), f"links/{segment(name)}/refill"
    if not certain:
        rows = app.get(path)
        _show(rows, output)
        if rows and output != "json":
            click.echo("\nTo execute it, add --yes.")
        return codes.CHANGES if rows else codes.OK
    rows = app.post(path, {"certain": True})
    with out.progress(f"refilling through {name}"):
        deadline = time.monotonic() + wait_s
        while any(row["stage"] == "waiting" for row in rows) and time.monotonic() < deadline:
            time.sleep(LOOK_S)
            rows = app.post(path, {"certain": True})
    _show(rows, output)
    stages = {row["stage"] for row in rows}
    return codes.UNREACHABLE if "waiting" in stages else codes.REFUSED if "blocked" in stages else codes.OK


def _show(rows: list[Row], output: str) -> None:
    if output == "json":
        out.as_json(rows)
    else:
        out.table(rows, REFILLED, "The target has lost no data.")
