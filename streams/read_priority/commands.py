"""Read priorities on the command line: their list, and one topic."""

from collections.abc import Iterator
from urllib.parse import quote

import click

from trueup.streams.rows import Row
from trueup.streams.runtime.descriptor import Commands
from trueup.streams.runtime.format import age, short, since, size
from trueup.streams.terminal import options, out
from trueup.streams.terminal.client import Api, ApiTarget
from trueup.streams.terminal.out import Column

COLUMNS = (
    Column("NAME", lambda r: r["name"]),
    Column("DECLARED", lambda r: r["declared"]),
    Column("IN FORCE", lambda r: r["in_force"]),
    Column("SET BY", lambda r: r["origin"]),
    Column("LEDGERS", lambda r: r["ledgers"] if r["level"] == "topic" else "", number=True),
    Column("OFFLOADED", lambda r: r["offloaded"] if r["level"] == "topic" else "", number=True),
    Column("STATE", lambda r: "switched" if r["switched_ms"] else ""),
    Column("RULE", lambda r: short(r["rule"])),
    Column("REASON", lambda r: r["reason"], clips=True),
)
LEDGERS = (
    Column("LEDGER", lambda r: str(r["ledger"])),
    Column("ENTRIES", lambda r: r["entries"], number=True),
    Column("BYTES", lambda r: size(r["bytes"]), number=True),
    Column("BOOKKEEPER", lambda r: r["bookkeeper"] + (", deleted" if r["dropped"] else "")),
    Column("TIERED", lambda r: r["tiered"]),
    Column("A BROKER READS", lambda r: r["broker"] + {True: ", stalls", None: ", unknown"}.get(r["stalls"], "")),
    Column("TRUEUP READS", lambda r: ", then ".join(r["reader"])),
    Column("DETAIL", lambda r: "; ".join(filter(None, (r["bookkeeper_detail"], r["tiered_detail"]))), clips=True),
)


@click.command(short_help="Read priorities of namespaces and topics.")
@options.listing
@options.api
def read_priorities(api: ApiTarget, output: str) -> int:
    """List the namespaces of read_priority.declared, and their topics with offloaded ledgers: the declared read
    priority, the one in force, and the level that sets it: broker, namespace or topic.

    \b
    Example:  trueup get read-priorities
    """
    return out.listing(
        output, Api(api).rows("read-priorities"), COLUMNS, "Nothing is managed: see read_priority.declared."
    )


@click.command(short_help="Read priority and ledgers of a Pulsar topic.")
@click.argument("name", metavar="TENANT/NAMESPACE/TOPIC")
@options.output
@options.api
def topic(api: ApiTarget, output: str, name: str) -> None:
    """Show the read priority of a topic, and for each closed ledger the state of its copies in both tiers, the tier
    that a broker opens, and the order in which `trueup read` tries them.

    \b
    Example:  trueup describe topic public/default/orders
    """
    app = Api(api)
    details = app.get(f"read-priorities/{quote(name.removeprefix('persistent://'), safe='/')}")
    if output == "json":
        out.as_json(details)
        return
    out.titled(_head(details, app.now_ms))
    out.bullets("Findings", [f"{finding['rule']}: {finding['reason']}" for finding in details["findings"]])
    out.bullets("History", [_event(event, app.now_ms) for event in details["history"]])
    click.echo("\nLedgers")
    out.table(details["copies"], LEDGERS, "None is closed.")
    if details["findings"]:
        out.note(f"trueup explain {details['findings'][0]['rule']}")


def _head(details: Row, now_ms: int) -> Iterator[tuple[str, str]]:
    yield "Topic", f"{details['name']}, observed {since(now_ms, details['at_ms'])} ago"
    declared = f"{details['declared']}, by {details['pattern']}" if details["declared"] else "unmanaged"
    yield "Declared", declared
    yield "In force", details["in_force"] + (f", set by the {details['origin']}" if details["origin"] else "")
    if details["why"]:
        yield "Reason", details["why"]
    if details["switched_ms"]:
        unloaded = ", unloaded since" if details["unloaded"] else ""
        yield "Switched", f"{since(now_ms, details['switched_ms'])} ago{unloaded}"
    yield "Deletion", f"from BookKeeper {_delay(details['lag_ms'])}"


def _delay(lag_ms: int | None) -> str:
    if lag_ms is None:
        return "never"
    return "at once: the delay is negative" if lag_ms < 0 else f"{age(lag_ms)} after the offload"


def _event(event: Row, now_ms: int) -> str:
    return f"{since(now_ms, event['at_ms'])} ago, {event['event']} by {event['who']}: {event['detail']}"


COMMANDS = Commands(get=(read_priorities,), describe=(topic,))
