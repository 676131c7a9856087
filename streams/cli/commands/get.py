"""trueup get: one row for each thing."""

from collections.abc import Callable
from dataclasses import replace

import click

from trueup.state.replication.rules import EVERY_RULE
from trueup.streams.cli import options, out
from trueup.streams.cli.out import DIRECTORY, Column, Row
from trueup.streams.runtime.format import age, short, since, size
from trueup.streams.web.client import Api, segment
from trueup.streams.web.engine import VERDICTS


@click.group(short_help="List ledgers, findings, bookies, marks, links, topics, dirs or actions.")
def get() -> None:
    """List things, one row each, the riskiest first.

    A list may be incomplete: before everything has been judged, while more than 1% of the ledgers wait for a verdict,
    and while a source cannot be seen. It says so then, and the exit code is 6. With -o json the rows are an array; a
    list that may be incomplete is {"incomplete": "why", "shown": 1, "total": 1, "rows": [...]} instead, so that no
    script takes it for the whole. Where --limit cuts a list, it ends with "100 of 1,026"; with -o json stderr has
    {"shown": 100, "total": 1026}.

    \b
    Example:  trueup get findings --verdict drifted -o json
    """


def _ago(api: Api, field: str) -> Callable[[Row], str]:
    return lambda row: since(api.now_ms, row[field])


@get.command(short_help="What is not true, riskiest first.")
@click.option("--verdict", type=click.Choice(VERDICTS[1:]), help="Only these.")
@click.option("--rule", metavar="RULE", help="Only those of this rule; `trueup explain` lists them.")
@options.limit(100)
@options.output
@options.api
def findings(api: str, output: str, verdict: str | None, rule: str | None, limit: int) -> int:
    """List ledgers that are not true: what is wrong, how many live copies and racks are left, for how long.

    \b
    Example:  trueup get findings --rule too-few-racks
    """
    app = Api(api)
    found = app.rows("findings", verdict=verdict, rule=full_rule(rule), limit=limit)
    columns = [
        Column("LEDGER", lambda r: str(r["ledger"])),
        Column("VERDICT", lambda r: r["verdict"]),
        Column("RULE", lambda r: short(r["rule"])),
        Column("COPIES", lambda r: r["copies"], number=True),
        Column("RACKS", lambda r: r["racks"], number=True),
        Column("REPAIR", lambda r: r["stage"] or ("marked" if r["marked"] else "")),
        Column("SINCE", _ago(app, "since_ms")),
        Column("REASON", lambda r: r["reason"], clips=True),
    ]
    return out.listing(output, found, columns, "Nothing found: no ledger that was asked about is other than true.")


@get.command(short_help="Ledgers that are not true, or all, or that nobody points to.")
@click.option("--all", "every", is_flag=True, help="Also those that are true.")
@click.option("--unreferenced", is_flag=True, help="Those that their owner forgot, longest forgotten first.")
@options.limit(100)
@options.output
@options.api
def ledgers(api: str, output: str, every: bool, unreferenced: bool, limit: int) -> int:
    """List ledgers with their shape: E/Qw, fragments, fewest live copies and racks of any fragment.

    With --unreferenced those that no managed ledger, cursor or schema points to, with owner, bytes and rule.

    \b
    Example:  trueup get ledgers --all --limit 20
    """
    app = Api(api)
    if unreferenced:
        found = app.rows("unreferenced", limit=limit)
        return out.listing(output, found, _unreferenced(app), "Every ledger has its owner.")
    found = app.rows("ledgers", all="true" if every else None, limit=limit)
    columns = [
        Column("LEDGER", lambda r: str(r["ledger"])),
        Column("VERDICT", lambda r: r["verdict"]),
        Column("RULE", lambda r: short(r["rule"])),
        Column("STATE", lambda r: r["state"]),
        Column("E/QW", lambda r: f"{r['ensemble']}/{r['quorum']}"),
        Column("FRAGMENTS", lambda r: r["fragments"], number=True),
        Column("COPIES", lambda r: r["copies"], number=True),
        Column("RACKS", lambda r: r["racks"], number=True),
        Column("SINCE", _ago(app, "since_ms")),
    ]
    empty = "No ledgers." if every else "Every ledger is true; --all shows them."
    return out.listing(output, found, columns, empty)


@get.command(short_help="Bookies with rack and status.")
@options.output
@options.api
def bookies(api: str, output: str) -> int:
    """List every bookie that ever registered.

    STATUS is writable, readonly, pending (away for less than the grace) or lost.

    \b
    Example:  trueup get bookies
    """
    app = Api(api)
    columns = [
        Column("BOOKIE", lambda r: r["bookie"]),
        Column("RACK", lambda r: r["rack"]),
        Column("STATUS", lambda r: r["status"]),
        Column("SINCE", _ago(app, "since_ms")),
    ]
    found = app.rows("bookies")
    if any(row.get("ledgers") is not None for row in found.rows):
        columns.insert(3, Column("LEDGERS", lambda r: r["ledgers"], number=True))
    return out.listing(output, found, columns, "No bookie has ever registered.")


@get.command(short_help="Under-replication marks, ours and others'.")
@options.output
@options.api
def marks(api: str, output: str) -> int:
    """List the under-replication marks in ZooKeeper: whose they are and which worker holds them.

    \b
    Example:  trueup get marks
    """
    app = Api(api)
    columns = [
        Column("LEDGER", lambda r: str(r["ledger"])),
        Column("OWNER", lambda r: "ours" if r["ours"] else "other"),
        Column("VERDICT", lambda r: r["verdict"]),
        Column("REPAIR", lambda r: r["stage"]),
        Column("LOCKED-BY", lambda r: r["locked_by"]),
        Column("AGE", _ago(app, "ctime_ms")),
    ]
    return out.listing(output, app.rows("marks"), columns, "No ledger is marked.")


def _unreferenced(app: Api) -> list[Column]:
    return [
        Column("LEDGER", lambda r: str(r["ledger"])),
        Column("RULE", lambda r: short(r["rule"])),
        Column("STATE", lambda r: r["state"]),
        Column("BYTES", lambda r: size(r["bytes"]), number=True),
        Column("DELETION", lambda r: r["stage"]),
        Column("SINCE", _ago(app, "since_ms")),
        Column("OWNER", lambda r: r["owner"], clips=True),
    ]


@get.command(short_help="Deletions under way, until storage confirms them.")
@options.output
@options.api
def markers(api: str, output: str) -> int:
    """List deletions: how far each is, and which bookies have yet to say that they have no such ledger.

    \b
    Example:  trueup get markers
    """
    app = Api(api)
    columns = [
        Column("LEDGER", lambda r: str(r["ledger"])),
        Column("STAGE", lambda r: r["stage"]),
        Column("RULE", lambda r: short(r["rule"])),
        Column("BYTES", lambda r: size(r["bytes"]), number=True),
        Column("TRIES", lambda r: r["attempts"], number=True),
        Column("PENDING", lambda r: ", ".join(r["pending"])),
        Column("SINCE", _ago(app, "since_ms")),
        Column("DETAIL", lambda r: r["detail"], clips=True),
    ]
    return out.listing(output, app.rows("markers"), columns, "Nothing is being deleted.")


@get.command(short_help="Links between Kafka clusters, with lag and state.")
@options.output
@options.api
def links(api: str, output: str) -> int:
    """List links: what copies from where to where, how far behind it is, and what is wrong.

    LAG counts source offsets not copied yet, AGE is that of the oldest record among them. STOPPED partitions need a
    person; `trueup describe link` tells why.

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
        Column("LAG", lambda r: r["lag_records"], number=True),
        Column("AGE", lambda r: age(r["lag_ms"]) if r["lag_ms"] >= 0 else "", number=True),
        Column("COPIED", lambda r: r["copied"], number=True),
        Column("REASON", lambda r: r["error"] or r["reason"], clips=True),
    ]
    return out.listing(output, Api(api).rows("links"), columns, "No links are declared.")


@get.command(short_help="Topics of links, with stage and lag.")
@click.option("--link", "name", metavar="NAME", help="Only those of this link.")
@options.output
@options.api
def topics(api: str, output: str, name: str | None) -> None:
    """List the topics that links copy: how far the copy of each is, and what is wrong.

    STAGE is that of its partition which needs most attention; `trueup describe link` shows each partition.

    \b
    Example:  trueup get topics --link east-west
    """
    app = Api(api)
    names = [row["link"] for row in app.get("links")] if name is None else [name]
    rows = [{"link": one, **row} for one in names for row in app.get(f"links/{segment(one)}")["by_topic"]]
    columns = [Column("LINK", lambda r: r["link"]), *out.TOPIC]
    if output == "json":
        out.as_json(rows)
    else:
        out.table(rows, columns, "No link has a topic.")


@get.command(short_help="Log directories of Kafka brokers, with what they hold.")
@click.option("--kafka", metavar="NAME", help="Only those of this cluster.")
@options.output
@options.api
def dirs(api: str, output: str, kafka: str | None) -> int:
    """List log directories: how full they are, how many partitions they hold, what is on its way.

    USED is the share of the volume; directories of one file system share it. COMING are bytes that moves have yet to
    write there. STATE is open, cordoned (by Trueup), cordoned by others, or offline.

    \b
    Example:  trueup get dirs --kafka east
    """
    found = Api(api).rows("directories")
    if kafka is not None:
        rows = [row for row in found.rows if row["kafka"] == kafka]
        found = replace(found, rows=rows, total=len(rows))
    columns = [
        Column("BROKER", lambda r: f"{r['kafka']}/{r['broker']}"),
        *DIRECTORY,
        Column("RULE", lambda r: short(r["rule"])),
        Column("REASON", lambda r: r["reason"], clips=True),
    ]
    return out.listing(output, found, columns, "No log directories are declared, or none was seen yet.")


@get.command(short_help="What was done, newest first.")
@options.limit(50)
@options.output
@options.api
def actions(api: str, output: str, limit: int) -> int:
    """List what was done: steps of repairs, deletions and moves, changes that links made, and what operators asked for.
    RULE says why, WHO by whom: trueup itself, or the user and address of a request. It is kept on the journal for
    journal.history_days, over restarts.

    \b
    Example:  trueup get actions --limit 10
    """
    app = Api(api)
    columns = [
        Column("ACTION", lambda r: r["id"]),
        Column("ABOUT", lambda r: r["link"] or r["broker"] or r["ledger"] or ""),
        Column("OUTCOME", lambda r: r["outcome"]),
        Column("RULE", lambda r: short(r["rule"])),
        Column("WHO", lambda r: r["who"]),
        Column("AGE", _ago(app, "at_ms")),
        Column("DETAIL", lambda r: r["detail"], clips=True),
    ]
    return out.listing(output, app.rows("actions", limit=limit), columns, "Nothing was done yet.")


def full_rule(rule: str | None) -> str | None:
    """The whole id of a rule that may have been given without its stream."""
    if rule is None or EVERY_RULE.find(rule):
        return rule
    return next((known.id for known in EVERY_RULE if short(known.id) == rule), rule)
