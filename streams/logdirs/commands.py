"""Log directories on the command line: their list, a broker, and trueup topic create."""

from collections.abc import Iterator

import click

from trueup.streams.rows import Row
from trueup.streams.runtime.descriptor import Commands
from trueup.streams.runtime.format import short, since, size
from trueup.streams.terminal import options, out
from trueup.streams.terminal.client import Api, ApiTarget, segment
from trueup.streams.terminal.out import Column

COLUMNS = (
    Column("PARTITION", lambda r: r["partition"], number=True),
    Column("BROKER", lambda r: r["broker"], number=True),
    Column("DIRECTORY", lambda r: r["path"]),
)


@click.group(short_help="Create a topic in selected log directories.")
def topic() -> None:
    """Create topics in log directories selected by the strategy of their cluster.

    \b
    Example:  trueup topic create east orders --partitions 12 --replicas 3
    """


@topic.command(short_help="Create a topic.")
@click.argument("kafka", metavar="CLUSTER")
@click.argument("name")
@click.option("--partitions", type=click.IntRange(1), default=1, show_default=True, help="Number of partitions.")
@click.option("--replicas", type=click.IntRange(1), default=1, show_default=True, help="Replication factor.")
@click.option("--config", "pairs", metavar="KEY=VALUE", multiple=True, help="Topic setting. Repeatable.")
@options.output
@options.api
def create(
    api: ApiTarget, output: str, kafka: str, name: str, partitions: int, replicas: int, pairs: tuple[str, ...]
) -> None:
    """Create topic NAME on a CLUSTER of section logdirs. Trueup selects the brokers with the fewest replicas,
    alternating between racks, and assigns a directory on each broker before it creates the topic. This works on every
    broker version. Requires mode approve or enforce.

    \b
    Example:  trueup topic create east orders --partitions 12 --config retention.ms=86400000
    """
    split = [pair.partition("=") for pair in pairs]
    if bad := [key for key, equals, _ in split if not key or not equals]:
        raise click.UsageError(f"--config: expected KEY=VALUE; found {bad[0]!r}")
    configs = {key: value for key, _, value in split}
    body = {"name": name, "partitions": partitions, "replicas": replicas, "configs": configs}
    rows = Api(api).post(f"topics/{segment(kafka)}", body)
    if output == "json":
        out.as_json(rows)
    else:
        out.table(rows, COLUMNS, "No partitions.")


def _state(row: Row) -> str:
    if not row["online"]:
        return "offline"
    return {"ours": "cordoned", "others": "cordoned by others"}.get(row["cordoned"], "open")


DIRECTORY = (
    Column("DIRECTORY", lambda r: r["path"]),
    Column("SIZE", lambda r: size(r["total"]) if r["total"] >= 0 else "", number=True),
    Column("USABLE", lambda r: size(r["usable"]) if r["usable"] >= 0 else "", number=True),
    Column("USED", lambda r: f"{r['used'] / r['total']:.0%}" if r["total"] > 0 else "", number=True),
    Column("PARTITIONS", lambda r: r["partitions"], number=True),
    Column("COMING", lambda r: size(r["incoming"]) if r["incoming"] else "", number=True),
    Column("STATE", _state),
)

MOVES = (
    Column("ACTION", lambda r: r["id"]),
    Column("ABOUT", lambda r: r.get("topic", r["broker"])),
    Column("STAGE", lambda r: r["stage"]),
    Column("WHAT", lambda r: r["reason"], clips=True),
)

LARGEST = (
    Column("REPLICA", lambda r: f"{r['topic']}-{r['partition']}"),
    Column("BYTES", lambda r: size(r["bytes"]), number=True),
    Column("DIRECTORY", lambda r: r["path"]),
)


@click.command(short_help="Log directories of Kafka brokers.")
@click.option("--kafka", metavar="NAME", help="Show only directories of this Kafka cluster.")
@options.listing
@options.api
def dirs(api: ApiTarget, output: str, kafka: str | None) -> int:
    """List log directories with size, usage, partitions and incoming bytes.

    USED is the used share of the volume; directories on one file system share it. COMING is the number of bytes that
    moves in progress have yet to write. STATE is open, cordoned (by Trueup), cordoned by others, or offline.

    \b
    Example:  trueup get dirs --kafka east
    """
    listing = Api(api).rows("directories")
    if kafka is not None:
        rows = [row for row in listing.rows if row["kafka"] == kafka]
        listing = listing._replace(rows=rows, total=len(rows))
    columns = [
        Column("BROKER", lambda r: f"{r['kafka']}/{r['broker']}"),
        *DIRECTORY,
        Column("RULE", lambda r: short(r["rule"])),
        Column("REASON", lambda r: r["reason"], clips=True),
    ]
    return out.listing(output, listing, columns, "No log directories are declared, or none has been observed yet.")


@click.command(short_help="Log directories of a broker, and planned moves.")
@click.argument("broker", metavar="CLUSTER/ID")
@options.output
@options.api
def broker(api: ApiTarget, output: str, broker: str) -> None:
    """Query a broker and show its log directories, its rule and the reason, the planned moves, and the largest
    replicas.

    \b
    Example:  trueup describe broker east/1
    """
    kafka, _, number = broker.partition("/")
    if not kafka or not number.isdecimal():
        raise click.BadParameter(f"expected CLUSTER/ID, for example east/1; found {broker!r}", param_hint="CLUSTER/ID")
    app = Api(api)
    details = app.get(f"brokers/{segment(kafka)}/{number}")
    if output == "json":
        out.as_json(details)
        return
    out.titled(_broker_head(details, app.now_ms))
    for title, rows, columns in (
        ("Directories", details["directories"], DIRECTORY),
        ("Moves", details["moves"], MOVES),
        ("Largest replicas", details["largest"], LARGEST),
    ):
        click.echo(f"\n{title}")
        out.table(rows, columns, "None.")
    if details["rule"]:
        out.note(f"trueup explain {details['rule']}")


def _broker_head(row: Row, now_ms: int) -> Iterator[tuple[str, str]]:
    yield ("Broker", f"{row['kafka']}/{row['broker']}, mode {row['mode']}, observed {since(now_ms, row['at_ms'])} ago")
    yield "Strategy", row["strategy"]
    yield "Skew", f"{row['skew']:.1%}" + (f", {row['after']:.1%} after the plan" if row["moves"] else "")
    if row["rule"]:
        yield "Rule", f"{row['rule']}: {row['reason']}"
    if row["throttles"]:
        yield "Throttle", f"{size(max(row['throttles']))}/s, set by Trueup"


COMMANDS = Commands(get=(dirs,), describe=(broker,), groups=(topic,))
