"""trueup drain, undrain and get drains: bookies whose replicas move to other bookies."""

from collections.abc import Sequence

import click

from trueup.state.common.counts import many
from trueup.state.common.options import near
from trueup.streams.rows import Row
from trueup.streams.runtime.format import short
from trueup.streams.terminal import options, out
from trueup.streams.terminal.client import Api, ApiTarget
from trueup.streams.terminal.out import Column

KEY = "placement.drain"
COLUMNS = (
    Column("BOOKIE", lambda r: r["bookie"]),
    Column("STATUS", lambda r: r["status"]),
    Column("LEDGERS", lambda r: r["ledgers"], number=True),
    Column("CLOSED", lambda r: r["closed"], number=True),
    Column("OPEN", lambda r: r["open"], number=True),
    Column("WAITS-FOR", lambda r: r["waits_for"] or "nothing: it can be removed", wraps=True),
)
_bookies = click.argument("bookies", nargs=-1, required=True, metavar="BOOKIE...")


@click.command(short_help="Move the replicas of bookies to other bookies.")
@_bookies
@options.output
@options.api
def drain(api: ApiTarget, output: str, bookies: tuple[str, ...]) -> None:
    """Move all replicas of these bookies to other bookies, so that they can be removed. Adds the bookies to the live
    setting placement.drain; the drain continues after restarts of the application, until `trueup undrain`.

    Closed ledgers are copied in placement.mode enforce, after ledgers at higher risk; in mode approve each copy waits
    for `trueup approve`. This needs placement.executor copy. A ledger that is open is copied when its writer has closed
    it. Set the bookies read-only first, so that they get no new ledgers. `trueup get drains` shows what is left, and
    when a bookie can be removed.

    \b
    Example:  trueup drain 10.0.0.1:3181
    """
    app = Api(api)
    known = [row["bookie"] for row in app.rows("bookies").rows]
    for bookie in bookies:
        if bookie not in known:
            more = near(bookie, known) or "; `trueup get bookies` lists them"
            raise click.BadParameter(f"expected a bookie; found {bookie!r}{more}", param_hint="BOOKIE")
    _set(app, output, [*_drained(app), *bookies])


@click.command(short_help="End a drain.")
@_bookies
@options.output
@options.api
def undrain(api: ApiTarget, output: str, bookies: tuple[str, ...]) -> None:
    """End the drain of these bookies. Replicas that were moved stay where they are; copies under way are finished.

    \b
    Example:  trueup undrain 10.0.0.1:3181
    """
    app = Api(api)
    now = _drained(app)
    for bookie in bookies:
        if bookie not in now:
            raise click.BadParameter(
                f"expected a bookie that is drained ({', '.join(now) or 'none is'}); found {bookie!r}",
                param_hint="BOOKIE",
            )
    _set(app, output, [bookie for bookie in now if bookie not in bookies])


@click.command(short_help="Bookies that are drained, and what is left on them.")
@options.listing
@options.api
def drains(api: ApiTarget, output: str) -> int:
    """List the bookies that are drained, with the ledgers that name them, by their current metadata.

    A bookie can be removed when no ledger names it, it is not writable, and all ledgers were judged and could be read.

    \b
    Example:  trueup get drains
    """
    app = Api(api)
    listing = app.rows("drains")
    code = out.listing(output, listing, COLUMNS, "No bookie is drained.")
    if output in ("table", "wide"):
        _hints(listing.rows)
    return code


def _hints(rows: Sequence[Row]) -> None:
    for row in rows:
        out.bullets(f"Open ledgers on {row['bookie']}", [_open(ledger) for ledger in row["open_ledgers"]])
    for row in rows:
        if row["removable"]:
            bookie = row["bookie"]
            out.note(
                f"Stop {bookie}, then remove its cookie: bin/bookkeeper shell cookie_delete {bookie}\n"
                f"Then end the drain: trueup undrain {bookie}"
            )
    if open_ := sum(row["open"] for row in rows):
        named = sum(len(row["open_ledgers"]) for row in rows)
        more = f"; {many(open_ - named, 'more ledger')} not shown" if open_ > named else ""
        out.note(f"trueup explain {short('placement.open-draining-member')} says what closes open ledgers{more}")


def _open(ledger: Row) -> str:
    return f"{ledger['ledger']}, of {ledger['owner'] or 'an unknown owner'}"


def _drained(app: Api) -> list[str]:
    names: list[str] = app.get("config")["live"][KEY]["value"]
    return names


def _set(app: Api, output: str, bookies: Sequence[str]) -> None:
    names = [*dict.fromkeys(bookies)]
    response = app.put(f"config/{KEY}", {"value": names})
    if output == "json":
        out.as_json(response)
        return
    click.echo(f"{KEY} is {', '.join(names) or 'empty'}")
    out.note("trueup get drains")
