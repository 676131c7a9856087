"""trueup plan and trueup approve."""

import click

from trueup.state.common.counts import many
from trueup.streams.catalog import STREAMS
from trueup.streams.rows import Row
from trueup.streams.runtime.format import short, since
from trueup.streams.terminal import codes, options, out
from trueup.streams.terminal.client import Api, ApiTarget
from trueup.streams.terminal.out import Column

COLUMNS = (
    Column("ACTION", lambda r: r["id"]),
    Column("KIND", lambda r: r["kind"]),
    Column("RULE", lambda r: short(r["rule"])),
    Column("ABOUT", lambda r: str(out.first(r, "topic", "link", "ledger", "about"))),
    Column("COPIES", lambda r: r["copies"], number=True),
    Column("RACKS", lambda r: r["racks"], number=True),
    Column("STAGE", lambda r: r["stage"]),
)


@click.command(short_help="Show the planned actions. Changes nothing.")
@options.listing
@options.api
def plan(api: ApiTarget, output: str) -> int:
    """Show the planned actions in order of risk. Changes nothing.

    ACTION contains the version on which the decision is based; if that version changes, the action is void. The plan
    lists repairs of ledgers; changes of links at their targets (topics, settings, ACLs, group offsets); moves and
    cordons of log directories with bytes, source, target and resulting skew; and deletions of unreferenced ledgers with
    their size and owner. REASON describes the difference.

    Exits with 0 if the plan is empty, with 3 if it contains actions, and with 6 if actions may be missing. `trueup get
    --help` describes the format of -o json.

    \b
    Example:  trueup plan -o json
    """
    app = Api(api)
    response = app.rows("plan")
    columns = [*COLUMNS, Column("NEXT", lambda r: _next(app.now_ms, r)), Column("REASON", _reason, clips=True)]
    code = out.listing(output, response, columns, "Nothing to do.")
    if output in ("table", "wide") and out.hints():
        _hint(app, response.rows)
    return code or (codes.CHANGES if response.rows else codes.OK)


def _next(now_ms: int, row: Row) -> str:
    """Time until the next attempt, for a ledger that a worker did not repair."""
    return f"in {since(row['next_ms'], now_ms)}" if row["next_ms"] and row["next_ms"] > now_ms else ""


def _reason(row: Row) -> str:
    """The reason of an action, and what blocks it."""
    detail = row["evidence"].get("detail")
    return f"{row['reason']} ({detail})" if detail else str(row["reason"])


def _hint(app: Api, rows: list[Row]) -> None:
    asking = sum(row["stage"] == "awaiting approval" for row in rows)
    if asking:
        out.note(f"{many(asking, 'action waits', 'actions wait')} for approval: trueup approve ACTION... or --all")
    elif keys := _observing(app, {row["kind"] for row in rows if row["stage"] == "planned"}):
        also = f", also with {', '.join(keys[1:])}" if keys[1:] else ""
        out.note(f"In mode observe no action is executed: trueup config set {keys[0]} approve{also}")


def _observing(app: Api, kinds: set[str]) -> list[str]:
    """The keys of modes in which actions of these kinds are not executed."""
    live = app.get("config")["live"] if kinds else {}
    modes = dict.fromkeys(key for stream in STREAMS if kinds & stream.kinds.keys() for key in stream.keys(live, "mode"))
    return [key for key in modes if live[key]["value"] == "observe"]


@click.command(short_help="Approve planned actions.")
@click.argument("actions", metavar="[ACTION]...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Approve all actions that currently wait for approval.")
@options.output
@options.api
def approve(api: ApiTarget, output: str, actions: tuple[str, ...], every: bool) -> None:
    """Approve actions by the ids that `trueup plan` shows. In mode approve an action is executed only after its
    approval.

    An approval is valid for the version of the ledger in the plan. If the ledger has changed, nothing is approved and
    the exit code is 5.

    \b
    Example:  trueup approve repair-21-v3
    """
    if every == bool(actions):
        raise click.UsageError("expected names of actions, or --all; found " + ("both" if every else "neither"))
    rows = Api(api).post("approve", {"all": True} if every else {"ids": list(actions)})
    if output == "json":
        out.as_json(rows)
    else:
        approved = [{**row, "stage": "approved"} for row in rows]
        out.table(approved, COLUMNS, "Nothing waits for approval.")
