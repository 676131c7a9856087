"""trueup describe ledger."""

from collections.abc import Iterator

import click

from streams.cli import options, out
from streams.cli.client import Api
from streams.cli.out import Column, Row, styled
from streams.words import many, since

MEMBERS = (
    Column("  ENTRIES", lambda r: f"  {r['entries']}" if r["entries"] else "  "),
    Column("BOOKIE", lambda r: r["bookie"]),
    Column("RACK", lambda r: r["rack"]),
    Column("STATUS", lambda r: r["status"]),
)


@click.group(short_help="Everything about one thing.")
def describe() -> None:
    """Show everything about one thing, with the evidence.

    \b
    Example:  trueup describe ledger 21
    """


@describe.command(short_help="Fragments, racks, evidence, what would change the verdict.")
@click.argument("ledger", type=click.IntRange(0, (1 << 63) - 1), metavar="ID")
@options.output
@options.api
def ledger(api: str, output: str, ledger: int) -> None:
    """Show one ledger, read afresh: its fragments and where their copies stand, why the verdict is what it is, and
    what would change it.

    \b
    Example:  trueup describe ledger 21
    """
    app = Api(api)
    found = app.get(f"ledgers/{ledger}")
    if output == "json":
        out.as_json(found)
        return
    for title, text in _head(found, app.now_ms):
        click.echo(f"{title:11}{text}")
    _fragments(found["fragments"])
    _list("What would change the verdict", found["changes"])
    _list("History", [_event(event, app.now_ms) for event in found["history"]])
    out.note(f"trueup explain {found['rule']}")


def _head(found: Row, now_ms: int) -> Iterator[tuple[str, str]]:
    yield "Ledger", str(found["ledger"])
    yield "Verdict", f"{styled(found['verdict'])}, {found['rule']}"
    yield "Reason", found["reason"] + (f": {found['error']}" if found.get("error") else "")
    if found.get("since_ms"):
        yield "Since", since(now_ms, found["since_ms"])
    created = f", created {since(now_ms, found['ctime_ms'])} ago" if found["ctime_ms"] > 0 else ""
    yield "State", f"{found['state']}, version {found['version']}, mzxid {found['mzxid']:#x}{created}"
    entries = f", {many(found['last_entry'] + 1, 'entry', 'entries')}, {found['length']:,} bytes"
    shape = f"E={found['ensemble']} Qw={found['quorum']} Qa={found['ack_quorum']}"
    yield "Shape", shape + (entries if found["last_entry"] >= 0 or found["state"] == "closed" else "")
    if found["stage"]:
        yield "Repair", found["stage"]
    if mark := found["mark"]:
        worker = f"held by {mark['locked_by']}" if mark["locked_by"] else "not taken yet"
        yield "Mark", f"{'ours' if mark['ours'] else 'not ours'}, {worker}, {since(now_ms, mark['ctime_ms'])} old"


def _fragments(fragments: list[Row]) -> None:
    for fragment in fragments:
        last = fragment["last_entry"]
        span = f"{fragment['first_entry']}-{last if last >= fragment['first_entry'] else ''}"
        rows = [{**member, "entries": "" if at else span} for at, member in enumerate(fragment["bookies"])]
        click.echo()
        out.table(rows, MEMBERS, "  no bookies")
        for line in _evidence(fragment):
            click.echo(f"  {line}")


def _evidence(fragment: Row) -> Iterator[str]:
    copies, racks = many(fragment["copies"], "live copy", "live copies"), many(fragment["racks"], "rack")
    rule = f"{fragment['rule']}: " if fragment.get("rule") else ""
    yield f"{rule}{copies} and {racks} in the worst window"
    for window in _distinct(fragment.get("failing_windows") or []):
        stands = ", ".join(window["racks"]) or "no rack that counts"
        yield f"window {' '.join(window['bookies'])}: {stands}, {many(window['copies'], 'live copy', 'live copies')}"
    if fragment.get("repair"):
        yield f"repair: {fragment['repair']}"


def _distinct(windows: list[Row]) -> Iterator[Row]:
    """Windows of different bookies: where E is Qw all of them are the same."""
    seen: set[frozenset[str]] = set()
    for window in windows:
        members = frozenset(window["bookies"])
        if members not in seen:
            seen.add(members)
            yield window


def _event(event: Row, now_ms: int) -> str:
    detail = f": {event['detail']}" if event["detail"] else ""
    return f"{since(now_ms, event['at_ms'])} ago, {event['event']}{detail}"


def _list(title: str, lines: list[str]) -> None:
    if lines:
        click.echo(f"\n{title}")
        for line in lines:
            click.echo(click.wrap_text(line, 96, initial_indent="  - ", subsequent_indent="    "))
