"""trueup get: one row for each thing."""

from collections.abc import Callable
from dataclasses import replace

import click

from trueup.streams.catalog import rules
from trueup.streams.cli import options, out
from trueup.streams.cli.out import DIRECTORY, Column, Row
from trueup.streams.runtime.format import age, short, since, size
from trueup.streams.web.client import Api, segment
from trueup.streams.web.engine import VERDICTS


@click.group(short_help="List ledgers, findings, bookies, marks, links, topics, dirs or actions.")
def get() -> None:
    """List resources, one per row, in order of risk.

    A list may be incomplete until all ledgers have been judged once, while more than 1% of the ledgers are not judged,
    and while a source cannot be observed. The command then prints a note and exits with 6. With -o json the rows are an
    array; an incomplete list is {"incomplete": "why", "shown": 1, "total": 1, "rows": [...]} instead, so that scripts
    do not mistake it for a complete list. If --limit truncates a list, the last line is "100 of 1,026"; with -o json
    stderr contains {"shown": 100, "total": 1026}.

    \b
    Example:  trueup get findings --verdict drifted -o json
    """


def _ago(api: Api, field: str) -> Callable[[Row], str]:
    return lambda row: since(api.now_ms, row[field])


@get.command(short_help="Ledgers with a verdict other than true.")
@click.option("--verdict", type=click.Choice(VERDICTS[1:]), help="Show only findings with this verdict.")
@click.option("--rule", metavar="RULE", help="Show only findings of this rule; `trueup explain` lists the rules.")
@options.limit(100)
@options.output
@options.api
def findings(api: str, output: str, verdict: str | None, rule: str | None, limit: int) -> int:
    """List ledgers with a verdict other than true: the rule, the smallest number of live replicas and racks, and the
    age of the finding.

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
    return out.listing(output, found, columns, "No findings.")


@get.command(short_help="Ledgers, by default those with a verdict other than true.")
@click.option("--all", "every", is_flag=True, help="Include ledgers with verdict true.")
@click.option("--unreferenced", is_flag=True, help="Show unreferenced ledgers, oldest first.")
@options.limit(100)
@options.output
@options.api
def ledgers(api: str, output: str, every: bool, unreferenced: bool, limit: int) -> int:
    """List ledgers with E/Qw, number of fragments, and the smallest number of live replicas and racks of any fragment.

    With --unreferenced, list ledgers that no managed ledger, cursor or schema references, with owner, size and rule.

    \b
    Example:  trueup get ledgers --all --limit 20
    """
    app = Api(api)
    if unreferenced:
        found = app.rows("unreferenced", limit=limit)
        return out.listing(output, found, _unreferenced(app), "No unreferenced ledgers.")
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
    """List every bookie that has ever registered.

    STATUS is writable, readonly, pending (unavailable for less than placement.grace_s) or lost.

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


@get.command(short_help="Under-replication marks.")
@options.output
@options.api
def marks(api: str, output: str) -> int:
    """List the under-replication marks in ZooKeeper with their owner and the worker that has locked them.

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


@get.command(short_help="Deletions in progress.")
@options.output
@options.api
def markers(api: str, output: str) -> int:
    """List deletions in progress with their stage and the bookies that have not confirmed them yet.

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
    return out.listing(output, app.rows("markers"), columns, "No deletions in progress.")


@get.command(short_help="Links between Kafka clusters, with lag and state.")
@options.output
@options.api
def links(api: str, output: str) -> int:
    """List links with source, target, lag and state.

    LAG is the number of source offsets that are not copied yet, AGE the age of the oldest record among them. STOPPED
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
        Column("LAG", lambda r: r["lag_records"], number=True),
        Column("AGE", lambda r: age(r["lag_ms"]) if r["lag_ms"] >= 0 else "", number=True),
        Column("COPIED", lambda r: r["copied"], number=True),
        Column("REASON", lambda r: r["error"] or r["reason"], clips=True),
    ]
    return out.listing(output, Api(api).rows("links"), columns, "No links are declared.")


@get.command(short_help="Topics of links, with stage and lag.")
@click.option("--link", "name", metavar="NAME", help="Show only topics of this link.")
@options.output
@options.api
def topics(api: str, output: str, name: str | None) -> None:
    """List the topics of links with stage and lag.

    STAGE is the most severe stage of the topic's partitions; `trueup describe link` shows each partition.

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


@get.command(short_help="Log directories of Kafka brokers.")
@click.option("--kafka", metavar="NAME", help="Show only directories of this Kafka cluster.")
@options.output
@options.api
def dirs(api: str, output: str, kafka: str | None) -> int:
    """List log directories with size, usage, partitions and incoming bytes.

    USED is the used share of the volume; directories on one file system share it. COMING is the number of bytes that
    moves in progress have yet to write. STATE is open, cordoned (by Trueup), cordoned by others, or offline.

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
    return out.listing(output, found, columns, "No log directories are declared, or none has been observed yet.")


@get.command(short_help="Executed actions, newest first.")
@options.limit(50)
@options.output
@options.api
def actions(api: str, output: str, limit: int) -> int:
    """List executed actions: transitions of repairs, deletions and moves, changes made by links, and requests of
    operators. RULE is the reason. WHO is trueup, or the user and address of the request. The journal keeps actions for
    journal.history_days.

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
    return out.listing(output, app.rows("actions", limit=limit), columns, "No actions have been executed.")


def full_rule(rule: str | None) -> str | None:
    """The whole id of a rule that may have been given without its stream."""
    if rule is None or rules().find(rule):
        return rule
    return next((known.id for known in rules() if short(known.id) == rule), rule)
