"""trueup what-if."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from trueup.state.common.errors import BadSettings
from trueup.streams.cli import configuration
from trueup.streams.runtime.format import many, size
from trueup.streams.terminal import codes, options, out
from trueup.streams.terminal.out import Column

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


@click.command("what-if", short_help="Show what the loss of a rack or a bookie would do.")
@click.argument("kind", type=click.Choice(["rack", "bookie"]))
@click.argument("names", nargs=-1)
@options.configuration
@options.output
def what_if(kind: str, names: tuple[str, ...], path: Path | None, pairs: tuple[str, ...], output: str) -> int:
    """Show what would happen to ledgers if a rack or a bookie died now.

    Without NAMES, one row for each rack or bookie; with several names, one row for the loss of all of them at once. A
    rack contains the racks below it. The command reads the metadata of all ledgers from ZooKeeper, and changes
    nothing. Bookies that are not registered now count as lost in every row; the row "now" shows them alone.

    \b
    LEDGERS   ledgers with entries there
    LOST      no replica of some of their entries would be left
    ONE COPY  one replica of some of their entries would be left
    FEWER     at least two, but fewer than the write quorum
    OPEN      ledgers that are being written there; they count as if every
              bookie of their last ensemble had entries
    TO COPY   bytes that AutoRecovery would copy

    Exits with 6 if the metadata of some ledgers are not readable.

    \b
    Example:  trueup what-if rack -c trueup.yaml
              trueup what-if bookie 10.0.0.1:3181 10.0.0.2:3181 -o json
    """
    settings = configuration.settings(path, pairs)
    if not settings.cluster.zookeeper:
        raise BadSettings(["cluster.zookeeper: expected the servers of the cluster; found nothing"])
    from trueup.streams.bookkeeper.what_if import NOW, answer
    from trueup.streams.bookkeeper.what_if_job import worst_first

    with out.progress("reading ledgers") as better:
        found = answer(settings, kind, names, lambda count: better(f"read {many(count, 'ledger')}"))
    rows = sorted((asdict(loss) for loss in found.losses.values()), key=worst_first)
    rows.sort(key=lambda row: row["name"] != NOW)
    if output == "json":
        out.as_json({"ledgers": found.ledgers, "missing": [*found.missing], "unread": found.unread, "rows": rows})
    else:
        out.table(rows, COLUMNS, "No bookies.")
        for line in _notes(rows, found.unread):
            click.echo(line)
    return codes.INCOMPLETE if found.unread else codes.OK


def _notes(rows: Sequence[dict[str, Any]], unread: int) -> list[str]:
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
