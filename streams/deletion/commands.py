"""The deletion stream on the command line: deletions in progress, and trueup delete."""

import time

import click

from trueup.streams.rows import Row
from trueup.streams.runtime.descriptor import Commands
from trueup.streams.runtime.format import short, size
from trueup.streams.terminal import codes, options, out
from trueup.streams.terminal.client import Api, ApiTarget
from trueup.streams.terminal.out import Column

LOOK_S = 0.5
COLUMNS = (
    Column("LEDGER", lambda r: str(r["ledger"])),
    Column("STAGE", lambda r: r["stage"]),
    Column("RULE", lambda r: short(r["rule"])),
    Column("BYTES", lambda r: size(r["bytes"]), number=True),
    Column("PENDING", lambda r: ", ".join(r["pending"])),
    Column("DETAIL", lambda r: r["detail"], clips=True),
)
_DONE = {"confirmed": codes.OK, "withdrawn": codes.REFUSED, "blocked": codes.REFUSED}


@click.group(short_help="Delete a ledger in a cluster without Pulsar.")
def delete() -> None:
    """Delete ledgers that only an operator can identify as unused.

    \b
    Example:  trueup delete ledger 4711 --yes
    """


@delete.command(short_help="Delete a closed ledger permanently.")
@click.argument("ledger", type=click.IntRange(0, (1 << 63) - 1))
@click.option("--yes", "certain", is_flag=True, help="Execute the deletion. Without --yes the ledger is only shown.")
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Maximum time to wait for the confirmation of all bookies.",
)
@options.output
@options.api
def ledger(api: ApiTarget, output: str, ledger: int, certain: bool, wait_s: float) -> int:
    """Delete LEDGER from a BookKeeper cluster without Pulsar. The deletion cannot be undone.

    Requires deletion.owners: operator and deletion.mode approve or enforce. The ledger must be closed. Trueup deletes
    its metadata if they have not changed, then queries every bookie of its ensembles until each answers that it has no
    such ledger. The deletion continues when this command stops waiting, and after a restart.

    Exits with 0 when the deletion is confirmed, with 3 without --yes, with 4 if it is not confirmed yet, and with 5 if
    the ledger must not be deleted.

    \b
    Example:  trueup delete ledger 4711 --yes
    """
    app = Api(api)
    if not certain:
        return _shown(app.get(f"ledgers/{ledger}"), output)
    row = app.post(f"ledgers/{ledger}/deletion", {"certain": True})
    with out.progress(f"deleting ledger {ledger}") as better:
        deadline = time.monotonic() + wait_s
        while row["stage"] not in _DONE and time.monotonic() < deadline:
            time.sleep(LOOK_S)
            row = _now(app, row)
            better(f"ledger {ledger}: {row['stage']}")
    if output == "json":
        out.as_json(row)
    else:
        out.table([row], COLUMNS, "")
    return _DONE.get(row["stage"], codes.UNREACHABLE)


def _now(app: Api, row: Row) -> Row:
    """A deletion in its current state, or how it ended."""
    number = row["ledger"]
    for deletion in app.get("deletions"):
        if deletion["ledger"] == number:
            return dict(deletion)
    steps = [step for step in app.get("actions") if step["kind"] == "deletion" and step["ledger"] == number]
    ended = next((step for step in steps if step["outcome"] in _DONE), None)
    return {**row, "stage": ended["outcome"], "detail": ended["detail"], "pending": []} if ended else row


def _shown(row: Row, output: str) -> int:
    if output == "json":
        out.as_json(row)
    else:
        out.table([row], SHOWN, "")
        click.echo("\nA deletion cannot be undone. To execute it, add --yes.")
    return codes.CHANGES


def _bookies(row: Row) -> str:
    return ", ".join(sorted({member["bookie"] for fragment in row["fragments"] for member in fragment["bookies"]}))


SHOWN = (
    Column("LEDGER", lambda r: str(r["ledger"])),
    Column("STATE", lambda r: r["state"]),
    Column("BYTES", lambda r: size(max(0, r["length"])), number=True),
    Column("MADE", lambda r: time.strftime("%Y-%m-%d %H:%M", time.localtime(r["ctime_ms"] / 1000))),
    Column("BOOKIES", _bookies, clips=True),
)


@click.command(short_help="Deletions in progress.")
@options.namespace
@options.listing
@options.api
def deletions(api: ApiTarget, output: str, namespace: str | None) -> int:
    """List deletions in progress with their stage and the bookies that have not confirmed them yet.

    \b
    Example:  trueup get deletions --namespace public/default
    """
    app = Api(api)
    columns = [
        Column("LEDGER", lambda r: str(r["ledger"])),
        Column("STAGE", lambda r: r["stage"]),
        Column("RULE", lambda r: short(r["rule"])),
        Column("BYTES", lambda r: size(r["bytes"]), number=True),
        Column("TRIES", lambda r: r["attempts"], number=True),
        Column("PENDING", lambda r: ", ".join(r["pending"])),
        Column("SINCE", out.ago(app, "since_ms")),
        Column("DETAIL", lambda r: r["detail"], clips=True),
    ]
    return out.listing(output, app.rows("deletions", namespace=namespace), columns, "No deletions in progress.")


COMMANDS = Commands(get=(deletions,), groups=(delete,))
