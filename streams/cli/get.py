"""trueup get: one row for each thing."""

from collections.abc import Callable, Sequence
from typing import Any

import click

from state.rules import RULES
from streams.cli import options, out
from streams.cli.client import Api
from streams.cli.out import Column, Row
from streams.web.engine import VERDICTS
from streams.words import short, since


@click.group(short_help="List ledgers, findings, bookies, marks or actions.")
def get() -> None:
    """List things, one row each, the riskiest first.

    \b
    Example:  trueup get findings --verdict drifted -o json
    """


def _ago(api: Api, field: str) -> Callable[[Row], str]:
    return lambda row: since(api.now_ms, row[field])


def _show(output: str, rows: Any, columns: Sequence[Column], empty: str) -> None:
    if output == "json":
        out.as_json(rows)
    else:
        out.table(rows, columns, empty)


@get.command(short_help="What is not true, riskiest first.")
@click.option("--verdict", type=click.Choice(VERDICTS[1:]), help="Only these.")
@click.option("--rule", metavar="RULE", help="Only those of this rule; `trueup explain` lists them.")
@options.limit(100)
@options.output
@options.api
def findings(api: str, output: str, verdict: str | None, rule: str | None, limit: int) -> None:
    """List ledgers that are not true: what is wrong, how many live copies and racks are left, for how long.

    \b
    Example:  trueup get findings --rule too-few-racks
    """
    app = Api(api)
    rows = app.get("findings", verdict=verdict, rule=full_rule(rule), limit=limit)
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
    _show(output, rows, columns, "Nothing found: no ledger that was asked about is other than true.")


@get.command(short_help="Ledgers that are not true, or all.")
@click.option("--all", "every", is_flag=True, help="Also those that are true.")
@options.limit(100)
@options.output
@options.api
def ledgers(api: str, output: str, every: bool, limit: int) -> None:
    """List ledgers with their shape: E/Qw, fragments, fewest live copies and racks of any fragment.

    \b
    Example:  trueup get ledgers --all --limit 20
    """
    app = Api(api)
    rows = app.get("ledgers", all="true" if every else None, limit=limit)
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
    _show(output, rows, columns, empty)


@get.command(short_help="Bookies with rack and status.")
@options.output
@options.api
def bookies(api: str, output: str) -> None:
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
    rows = app.get("bookies")
    if any(row.get("ledgers") is not None for row in rows):
        columns.insert(3, Column("LEDGERS", lambda r: r["ledgers"], number=True))
    _show(output, rows, columns, "No bookie has ever registered.")


@get.command(short_help="Under-replication marks, ours and others'.")
@options.output
@options.api
def marks(api: str, output: str) -> None:
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
    _show(output, app.get("marks"), columns, "No ledger is marked.")


@get.command(short_help="What was done, newest first.")
@options.limit(50)
@options.output
@options.api
def actions(api: str, output: str, limit: int) -> None:
    """List the latest steps of repairs in this run of the application.

    \b
    Example:  trueup get actions --limit 10
    """
    app = Api(api)
    columns = [
        Column("ACTION", lambda r: r["id"]),
        Column("LEDGER", lambda r: str(r["ledger"])),
        Column("OUTCOME", lambda r: r["outcome"]),
        Column("RULE", lambda r: short(r["rule"])),
        Column("AGE", _ago(app, "at_ms")),
        Column("DETAIL", lambda r: r["detail"], clips=True),
    ]
    _show(output, app.get("actions", limit=limit), columns, "Nothing was done in this run.")


def full_rule(rule: str | None) -> str | None:
    """The whole id of a rule that may have been given without its stream."""
    if rule is None or RULES.find(rule):
        return rule
    return next((known.id for known in RULES if short(known.id) == rule), rule)
