"""trueup what-if."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from trueup.state.common.counts import many
from trueup.state.common.errors import BadSettings, Refused, Retry
from trueup.streams.cli import configuration
from trueup.streams.rows import Row
from trueup.streams.runtime.format import since, size
from trueup.streams.terminal import codes, options, out
from trueup.streams.terminal.client import Api, ApiTarget
from trueup.streams.terminal.out import Column

POLL_S = 0.5
FRESH_MS = 5 * 60_000
"""The age up to which an answer of the application is shown while it reads again."""

COLUMNS = [
    Column("FAILURE", lambda row: row["name"], wraps=True),
    Column("BOOKIES", lambda row: row["bookies"], number=True),
    Column("LEDGERS", lambda row: row["ledgers"], number=True),
    Column("LOST", lambda row: row["lost"], number=True),
    Column("ONE COPY", lambda row: row["one_copy"], number=True),
    Column("FEWER", lambda row: row["fewer"], number=True),
    Column("OPEN", lambda row: row["open"], number=True),
    Column("TO COPY", lambda row: size(row["to_copy"]), number=True),
]


@click.command("what-if", short_help="Show what the loss of racks or bookies would do.")
@click.argument("kind", type=click.Choice(["rack", "bookie", "region", "zone", "group"]))
@click.argument("names", nargs=-1)
@options.configuration
@options.listing
@options.api
def what_if(
    api: ApiTarget, kind: str, names: tuple[str, ...], path: Path | None, pairs: tuple[str, ...], output: str
) -> int:
    """Show what would happen to ledgers if a rack, a bookie, a region, a zone or an isolation group died now.

    Without NAMES, one row for each; with several names, one row for the loss of all of them at once. A rack contains
    the racks below it. Regions and zones are the first part of a location of two, such as /zone/upgradeDomain; groups
    are those of Pulsar's /bookies. Bookies that are not registered now count as lost in every row; the row "now"
    shows them alone.

    The running application reads the metadata of all ledgers for at most 5% of the time, and answers with its newest
    reading. If that is older than five minutes and the application reads again, the command waits for the result. With
    -c or --set, the command reads the metadata itself, from ZooKeeper. It changes nothing.

    \b
    LEDGERS   ledgers with entries there
    LOST      no replica of some of their entries would be left
    ONE COPY  one replica of some of their entries would be left
    FEWER     at least two, but fewer than the write quorum
    OPEN      ledgers that are being written there; they count as if every
              bookie of their last ensemble had entries
    TO COPY   bytes that AutoRecovery would write at most; it copies every entry
              of a fragment to each new bookie, even if the old one stored
              only a part of them

    Exits with 4 if the application's last reading failed, and with 6 if the metadata of some ledgers are not readable.

    \b
    Example:  trueup what-if rack
              trueup what-if bookie 10.0.0.1:3181 10.0.0.2:3181 -c trueup.yaml -o json
    """
    client = Api(api)
    losses = _read(kind, names, path, pairs) if path or pairs else _asked(client, kind, names)
    out.formatted(output, losses, losses["rows"], COLUMNS, f"No bookie has a {kind}.")
    if output in ("table", "wide"):
        for line in _notes(losses["rows"], losses["unread"]):
            click.echo(line)
        if not (path or pairs):
            click.echo(f"\nRead {since(client.now_ms, losses['at_ms'])} ago by the application.")
    return codes.INCOMPLETE if losses["unread"] else codes.OK


def _read(kind: str, names: Sequence[str], path: Path | None, pairs: tuple[str, ...]) -> Row:
    """The losses, from ZooKeeper: ledgers, missing (bookies), unread (ledgers), at_ms (of the reading), rows."""
    settings = configuration.settings(path, pairs)
    if not settings.cluster.zookeeper:
        raise BadSettings(["cluster.zookeeper: expected the servers of the cluster; found nothing"])
    from trueup.state.placement.what_if import NOW
    from trueup.streams.placement.what_if.answer import answer
    from trueup.streams.placement.what_if.job import worst_first

    at_ms = time.time_ns() // 1_000_000
    with out.progress("reading ledgers") as better:
        result = answer(settings, kind, names, lambda count: better(f"read {many(count, 'ledger')}"))
    rows = sorted((asdict(loss) for loss in result.losses.values()), key=worst_first)
    rows.sort(key=lambda row: row["name"] != NOW)
    return {
        "ledgers": result.ledgers,
        "missing": [*result.missing],
        "unread": result.unread,
        "at_ms": at_ms,
        "rows": rows,
    }


def _asked(api: Api, kind: str, names: Sequence[str]) -> Row:
    """The same, from the application. Raises `Refused` for names that it has no row of, and for several of them, and
    `Retry` if its last reading failed: what it read before may have changed."""
    with out.progress("reading ledgers") as better:
        while (reading := api.get(f"what-if/{kind}"))["again"] and not _fresh(reading, api.now_ms):
            better(f"the application has read {many(reading['read'], 'ledger')}")
            time.sleep(POLL_S)
    if reading["error"] or reading["at_ms"] is None:
        raise Retry(
            "the metadata of all ledgers", reading["error"] or "none", "see `trueup status`, or read them with -c FILE"
        )
    by_name = {row["name"]: row for row in reading["failures"]}
    if len(names) > 1 or not by_name.keys() >= {*names}:
        raise Refused(
            f"a {kind} by itself: {', '.join([*by_name][:10])}", " ".join(names), "name the cluster with -c FILE"
        )
    failures = [by_name[name] for name in names] or reading["failures"]
    rows = ([reading["now"]] if reading["now"] else []) + failures
    return {**{name: reading[name] for name in ("ledgers", "missing", "unread", "at_ms")}, "rows": rows}


def _fresh(reading: Row, now_ms: int) -> bool:
    return not reading["error"] and reading["at_ms"] is not None and now_ms - reading["at_ms"] <= FRESH_MS


def _notes(rows: Sequence[Row], unread: int) -> list[str]:
    """What the table does not show."""
    lines = []
    for row in rows:
        if row["named"]:
            shown = ", ".join(map(str, row["named"])) + (", ..." if row["lost"] > len(row["named"]) else "")
            lines.append(f"{row['name']}: lost {shown}")
        if row["unwritable"]:
            lines.append(
                f"{row['name']}: too few writable bookies are left for {many(row['unwritable'], 'open ledger')}"
            )
        if row["unrepairable"]:
            lines.append(
                f"{row['name']}: too few writable bookies are left to repair {many(row['unrepairable'], 'ledger')}"
            )
    if unread:
        lines.append(f"The metadata of {many(unread, 'ledger')} are not readable, and not in these numbers.")
    return ["", *lines] if lines else []
