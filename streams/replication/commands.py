"""Links on the command line: lists of links and topics, one link, and trueup link: pause, resume, reset, refill."""

import time
from collections.abc import Iterator

import click

from trueup.connectors.contract import LogId
from trueup.state.common.counts import many
from trueup.state.common.errors import Refused
from trueup.state.common.patterns import matches
from trueup.streams.rows import Row
from trueup.streams.runtime.descriptor import Commands
from trueup.streams.runtime.format import age, since, size
from trueup.streams.terminal import codes, options, out
from trueup.streams.terminal.client import Api, ApiTarget, ListResponse, segment
from trueup.streams.terminal.options import Command
from trueup.streams.terminal.out import Column, styled

LOOK_S = 0.5
FEW = 10
"""Partitions of a reset that are printed, besides those that cannot be reset."""
RESET = (
    Column("PARTITION", lambda r: r["partition"]),
    Column("OFFSET", lambda r: r["offset"] if r["offset"] >= 0 else "", number=True),
    Column("WAS", lambda r: r["was"], number=True),
    Column("EFFECT", lambda r: r["reason"] or _effect(r["offset"] - r["was"])),
)
REFILLED = (
    Column("TOPIC", lambda r: r["target_topic"]),
    Column("PARTITIONS", lambda r: r["partitions"], number=True),
    Column("RECORDS", lambda r: r["records"], number=True),
    Column("BYTES", lambda r: size(r["bytes"]) if r["bytes"] >= 0 else "", number=True),
    Column("STAGE", lambda r: r["stage"]),
    Column("REASON", lambda r: r["reason"], clips=True),
)


def _effect(step: int) -> str:
    """What a reset by this number of offsets causes."""
    return f"copies {-step:,} again" if step < 0 else f"skips {step:,}" if step > 0 else ""


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
def pause(api: ApiTarget, output: str, name: str, topics: tuple[str, ...]) -> None:
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
def resume(api: ApiTarget, output: str, name: str, topics: tuple[str, ...]) -> None:
    """Resume link NAME, or some of its topics.

    \b
    Examples:  trueup link resume east-west
               trueup link resume east-west --topic orders
    """
    _set(api, output, name, topics, False)


def _set(api: ApiTarget, output: str, name: str, topics: tuple[str, ...], paused: bool) -> None:
    app = Api(api)
    link_topics = {row["topic"] for row in app.get(f"links/{segment(name)}")["by_topic"]}
    if unknown := sorted(set(topics) - link_topics):
        raise Refused(f"topics of link {name}", ", ".join(unknown), f"see `trueup describe link {name}`")
    key = f"links.{name}.paused_topics" if topics else f"links.{name}.paused"
    value = _paused(app.get("config")["live"][key]["value"], topics, paused) if topics else paused
    response = app.put(f"config/{segment(key)}", {"value": value})
    if output == "json":
        out.as_json(response)
        return
    for what in topics or (name,):
        click.echo(f"{what} is {'paused' if paused else 'resumed'}")


def _paused(patterns: list[str], topics: tuple[str, ...], paused: bool) -> list[str]:
    """The new list of paused topics. Raises `Refused` for a topic that an expression pauses."""
    left = [pattern for pattern in patterns if pattern not in topics]
    if paused:
        return [*left, *topics]
    if held := sorted(topic for topic in topics if matches(left, topic)):
        todo = "remove the expression from links.NAME.paused_topics"
        raise Refused("topics paused by name", f"{', '.join(held)}, paused by {', '.join(left)}", todo)
    return left


@link.command(short_help="Continue at a different source offset.")
@click.argument("name")
@click.option(
    "--to", required=True, metavar="earliest|latest|OFFSET", help="Source offset at which the link continues."
)
@click.option(
    "--partition",
    "partitions",
    metavar="TOPIC-N",
    multiple=True,
    help="Reset only this partition; TOPIC@BROKER-N if its name contains its broker. Repeatable.",
)
@click.option("--topic", "topics", metavar="TOPIC", multiple=True, help="Reset only this source topic. Repeatable.")
@click.option("--yes", "certain", is_flag=True, help="Execute the reset. Without --yes it is only shown.")
@options.output
@options.api
def reset(
    api: ApiTarget, output: str, name: str, partitions: tuple[str, ...], topics: tuple[str, ...], to: str, certain: bool
) -> int:
    """Set the source offsets at which link NAME continues with its next leases.

    Records at the target are not changed: an earlier offset duplicates records, a later offset skips records. The reset
    is stored in the journal and in the history, and `trueup describe link` shows it. Without --topic and --partition
    it applies to all partitions of the link.

    Exits with 0 if the offsets are set, with 3 without --yes, with 4 if some partitions cannot be reset, which are
    all listed and remain as they are, and with 5 if the reset is refused.

    \b
    Example:  trueup link reset east-west --partition orders-0 --to earliest --yes
    """
    app, path = Api(api), f"links/{segment(name)}"
    selection = [*partitions, *_partitions(app, path, topics)]
    rows = app.post(f"{path}/reset", {"to": to, "certain": certain, **({"partitions": selection} if selection else {})})
    left = [row for row in rows if row["offset"] < 0 and not row["gone"]]  # a topic that is gone has no offset to set
    if output == "json":
        out.as_json(rows)
    else:
        shown = rows[:FEW] + [row for row in rows[FEW:] if row["offset"] < 0]
        out.table(shown, RESET, "The link copies no partition yet.")
        if len(rows) > len(shown):
            click.echo(f"and {len(rows) - len(shown):,} more: trueup describe link {name}")
        if left and certain:
            click.echo(f"\n{many(len(left), 'partition')} of {len(rows):,} cannot be reset: see EFFECT.")
        if rows and not certain:
            click.echo("\nTo execute it, add --yes.")
    if certain:
        return codes.UNREACHABLE if left else codes.OK
    return codes.CHANGES if rows else codes.OK


def _partitions(app: Api, path: str, topics: tuple[str, ...]) -> list[str]:
    """The partitions of these topics. Raises `Refused` for a topic that the link does not copy."""
    copies = app.get(path)["copies"] if topics else []
    if unknown := sorted(set(topics) - {copy["topic"] for copy in copies}):
        raise Refused("topics that the link copies", ", ".join(unknown), "see `trueup describe link NAME`")
    return [str(LogId(c["topic"], c["partition"], c["place"])) for c in copies if c["topic"] in topics]


@link.command(short_help="Restore the data of a target that lost it.")
@click.argument("name")
@click.option("--yes", "certain", is_flag=True, help="Execute the refill. Without --yes it is only shown.")
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Maximum time to wait for leases to end and topics to be created.",
)
@options.output
@options.api
def refill(api: ApiTarget, output: str, name: str, certain: bool, wait_s: float) -> int:
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
        _show(name, rows, output)
        if rows and output != "json":
            click.echo("\nTo execute it, add --yes.")
        return codes.CHANGES if rows else codes.OK
    rows = app.post(path, {"certain": True})
    with out.progress(f"refilling through {name}"):
        deadline = time.monotonic() + wait_s
        while any(row["stage"] == "waiting" for row in rows) and time.monotonic() < deadline:
            time.sleep(LOOK_S)
            rows = app.post(path, {"certain": True})
    _show(name, rows, output)
    stages = {row["stage"] for row in rows}
    return codes.UNREACHABLE if "waiting" in stages else codes.REFUSED if "blocked" in stages else codes.OK


def _show(link: str, rows: list[Row], output: str) -> None:
    if output == "json":
        out.as_json(rows)
    else:
        other = f"`trueup describe link {link}` shows the commands for stopped partitions, if there are any."
        out.table(rows, REFILLED, f"There is nothing to refill. {other}")


LAG = Column("LAG", lambda r: r["lag_records"] if r["lag_records"] >= 0 else "", number=True)
AGE = Column("AGE", lambda r: age(r["lag_ms"]) if r["lag_ms"] >= 0 else "", number=True)

TOPIC = (
    Column("TOPIC", lambda r: r["topic"]),
    Column("TO", lambda r: r["target_topic"]),
    Column("STAGE", lambda r: r["stage"]),
    Column("PARTITIONS", lambda r: r["partitions"], number=True),
    Column("STOPPED", lambda r: r["stopped"], number=True),
    LAG,
    AGE,
    Column("REASON", lambda r: r["error"], clips=True),
)

COPIES = (
    Column("TOPIC", lambda r: r["topic"]),
    Column("PARTITION", lambda r: f"{r['place']}-{r['partition']}" if r["place"] else r["partition"], number=True),
    Column("TO", lambda r: str(LogId(r["target_topic"], r["target_partition"], r["target_place"]))),
    Column("COPIED-TO", lambda r: r["offset"] if r["offset"] >= 0 else "", number=True),
    Column("SOURCE-END", lambda r: r["source_end"] if r["source_end"] >= 0 else "", number=True),
    Column("TARGET-END", lambda r: r["target_end"] if r["target_end"] >= 0 else "", number=True),
    LAG,
    AGE,
    Column("PATH", lambda r: r["path"]),
    Column("STAGE", lambda r: r["stage"]),
)

CHECKPOINTS = (
    Column("GROUP", lambda r: r["group"]),
    Column("FROM", lambda r: r["source"]),
    Column("COMMITTED", lambda r: r["committed"], number=True),
    Column("TO", lambda r: r["target"]),
    Column("TRANSLATED", lambda r: r["translated"] if r["translated"] >= 0 else "", number=True),
    Column("PRESENT", lambda r: r["present"] if r["present"] >= 0 else "", number=True),
    Column("ACTION", lambda r: r["action"]),
    Column("REASON", lambda r: r["reason"], clips=True),
)


@click.command(short_help="Links between clusters, with lag and state.")
@options.listing
@options.api
def links(api: ApiTarget, output: str) -> int:
    """List links with source, target, lag and state.

    LAG is the number of source offsets that are not copied yet, AGE the age of the oldest record among them; both are
    empty as long as they are unknown, and those of the last observation while a cluster is down. STOPPED
    partitions require an operator; `trueup describe link` shows the reason.

    \b
    Example:  trueup get links
    """
    columns = [
        Column("LINK", lambda r: r["link"]),
        Column("FROM", lambda r: r["source"]),
        Column("TO", lambda r: r["target"]),
        Column("MODE", lambda r: r["mode"]),
        Column("STATE", lambda r: r["state"]),
        Column("PATH", lambda r: r["path"]),
        Column("PARTITIONS", lambda r: r["partitions"], number=True),
        Column("STOPPED", lambda r: r["stopped"], number=True),
        LAG,
        AGE,
        Column("COPIED", lambda r: r["copied"], number=True),
        Column("REASON", lambda r: r["error"] or r["reason"], clips=True),
    ]
    return out.listing(output, Api(api).rows("links"), columns, "No links are declared.")


@click.command(short_help="Topics of links, with stage and lag.")
@click.option("--link", "name", metavar="NAME", help="Show only topics of this link.")
@options.listing
@options.api
def topics(api: ApiTarget, output: str, name: str | None) -> int:
    """List the topics of links with stage and lag.

    STAGE is the most severe stage of the topic's partitions; `trueup describe link` shows each partition.

    \b
    Example:  trueup get topics --link east-west
    """
    app = Api(api)
    links = app.rows("links")
    names = [row["link"] for row in links.rows] if name is None else [name]
    rows = [
        {"link": link_name, **row} for link_name in names for row in app.get(f"links/{segment(link_name)}")["by_topic"]
    ]
    columns = [*TOPIC[:1], Column("LINK", lambda r: r["link"]), *TOPIC[1:]]
    return out.listing(output, ListResponse(rows, len(rows), links.incomplete), columns, "No link has a topic.")


@click.command("link", short_help="State and partitions of a link.")
@click.argument("name")
@options.output
@options.api
def describe_link(api: ApiTarget, output: str, name: str) -> None:
    """Show the state of a link with its reasons, the counts of its records, and each partition.

    \b
    Example:  trueup describe link east-west
    """
    app = Api(api)
    details = app.get(f"links/{segment(name)}")
    if output == "json":
        out.as_json(details)
        return
    out.titled(_link_head(details, app.now_ms))
    if len(details["by_topic"]) > 1:
        click.echo()
        out.table(details["by_topic"], TOPIC, "")
    click.echo()
    out.table(details["copies"], COPIES, "The link has no partition.")
    if details["checkpoints"]:
        click.echo()
        out.table(details["checkpoints"], CHECKPOINTS, "")
    problems = [
        f"{LogId(c['topic'], c['partition'], c['place'])}: {c['error']}" for c in details["copies"] if c["error"]
    ]
    out.bullets("Problems", [*problems, *details["unreadable"]])
    out.bullets(
        "Groups without an offset at the target",
        [f"{row['group']}: {row['reason']}" for row in details["untranslated"]],
    )
    out.bullets(
        "Commands that continue the copy",
        [
            f"{way['command']}: {way['topic']}, {many(way['partitions'], 'partition')}: {way['does']}"
            for way in details["ways"]
        ],
    )
    out.bullets("Remedies", [f"{row['rule']}: {row['remedy']}" for row in details["remedies"]])


def _link_head(details: Row, now_ms: int) -> Iterator[tuple[str, str]]:
    yield "Link", f"{details['link']}, {details['source']} to {details['target']}"
    yield (
        "State",
        f"{styled(details['state'])}, mode {details['mode']}" + (f": {details['reason']}" if details["reason"] else ""),
    )
    yield "Path", f"{details['path']}" + (f": {details['path_reason']}" if details["path_reason"] else "")
    yield (
        "Lag",
        (many(details["lag_records"], "record") if details["lag_records"] >= 0 else "unknown")
        + (f", the oldest {age(details['lag_ms'])} old" if details["lag_ms"] > 0 else ""),
    )
    if details["rounds"]:
        yield "Leases", f"{many(details['rounds'], 'round')}, the last ended {since(now_ms, details['taken_ms'])} ago"
    beat = details["heartbeat_age_ms"]
    arrived = f"{age(beat)} old, took {details['heartbeat_lag_ms']} ms" if beat >= 0 else "none arrived yet"
    yield "Heartbeat", arrived + (f"; {details['heartbeat_error']}" if details["heartbeat_error"] else "")
    if details["differences"] > 0:
        yield "Target", f"{many(details['differences'], 'difference')}: trueup plan"
    counted = ("copied", "skipped", "dropped", "filtered", "dismissed", "lost", "repeated", "foreign", "foreign_tags")
    shown = (name for name in counted if details[name] or name == "copied")
    yield "Records", ", ".join(f"{details[name]:,} {name.replace('_', ' ')}" for name in shown)
    yield "Bytes", size(details["bytes"])
    if details["error"]:
        yield "Problem", details["error"]


COMMANDS = Commands(get=(links, topics), describe=(describe_link,), groups=(link,))
