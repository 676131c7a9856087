"""The placement stream on the command line: ledgers, bookies and marks."""

from collections.abc import Iterator

import click

from trueup.state.common.counts import many
from trueup.streams.placement.drain_commands import drain, drains, undrain
from trueup.streams.rows import Row
from trueup.streams.runtime.descriptor import Commands
from trueup.streams.runtime.format import short, since, size
from trueup.streams.terminal import options, out
from trueup.streams.terminal.client import Api, ApiTarget
from trueup.streams.terminal.out import Column, styled

MEMBERS = (
    Column("  ENTRIES", lambda r: f"  {r['entries']}" if r["entries"] else "  "),
    Column("BOOKIE", lambda r: r["bookie"]),
    Column("RACK", lambda r: r["rack"]),
    Column("STATUS", lambda r: r["status"]),
)

NODES = (
    Column("NODE", lambda r: r["path"]),
    Column("READ", lambda r: r["error"] or r["status"], clips=True),
    Column("POINTS", lambda r: "yes" if r["points"] else "no"),
    Column("LEDGERS", lambda r: r["ledgers"], number=True),
    Column("HIGHEST", lambda r: "" if r["highest"] is None else str(r["highest"]), number=True),
)


@click.command(short_help="Ledgers, by default those with a verdict other than true.")
@click.option("--all", "every", is_flag=True, help="Include ledgers with verdict true.")
@click.option("--unreferenced", is_flag=True, help="Show unreferenced ledgers, oldest first.")
@options.bookie
@options.namespace
@options.limit(100)
@options.listing
@options.api
def ledgers(
    api: ApiTarget, output: str, every: bool, unreferenced: bool, bookie: str | None, namespace: str | None, limit: int
) -> int:
    """List ledgers with E/Qw, number of fragments, and the smallest number of live replicas and racks of any fragment.

    With --unreferenced, list ledgers that no managed ledger, cursor or schema references, with owner, size and rule.
    These are not selected by --bookie.

    \b
    Example:  trueup get ledgers --all --bookie 10.0.0.1:3181 --limit 20
    """
    app, where = Api(api), {"bookie": bookie, "namespace": namespace}
    if unreferenced:
        listing = app.rows("unreferenced", limit=limit, **where)
        return out.listing(output, listing, _unreferenced(app), "No unreferenced ledgers.")
    listing = app.rows("ledgers", all="true" if every else None, limit=limit, **where)
    columns = [
        Column("LEDGER", lambda r: str(r["ledger"])),
        Column("VERDICT", lambda r: r["verdict"]),
        Column("RULE", lambda r: short(r["rule"])),
        Column("STATE", lambda r: r["state"]),
        Column("E/QW", lambda r: f"{r['ensemble']}/{r['quorum']}"),
        Column("FRAGMENTS", lambda r: r["fragments"], number=True),
        Column("COPIES", lambda r: r["copies"], number=True),
        Column("RACKS", lambda r: r["racks"], number=True),
        Column("SINCE", out.ago(app, "since_ms")),
    ]
    empty = "No ledgers." if every or bookie or namespace else "Every ledger is true; --all shows them."
    return out.listing(output, listing, columns, empty)


def _unreferenced(app: Api) -> list[Column]:
    return [
        Column("LEDGER", lambda r: str(r["ledger"])),
        Column("RULE", lambda r: short(r["rule"])),
        Column("STATE", lambda r: r["state"]),
        Column("BYTES", lambda r: size(r["bytes"]), number=True),
        Column("DELETION", lambda r: r["stage"]),
        Column("SINCE", out.ago(app, "since_ms")),
        Column("OWNER", lambda r: r["owner"], clips=True),
    ]


@click.command(short_help="Bookies with rack and status.")
@options.listing
@options.api
def bookies(api: ApiTarget, output: str) -> int:
    """List every bookie that has ever registered.

    STATUS is writable, readonly, pending (unavailable for less than placement.grace_s) or lost. A bookie that is
    drained is also draining, and gets no replica from Trueup.

    \b
    Example:  trueup get bookies
    """
    app = Api(api)
    columns = [
        Column("BOOKIE", lambda r: r["bookie"]),
        Column("RACK", lambda r: r["rack"]),
        Column("STATUS", lambda r: r["status"] + (", draining" if r["draining"] else "")),
        Column("SINCE", out.ago(app, "since_ms")),
    ]
    listing = app.rows("bookies")
    if any(row["groups"] for row in listing.rows):
        columns.insert(2, Column("GROUPS", lambda r: ",".join(r["groups"])))
    if any(row.get("ledgers") is not None for row in listing.rows):
        columns.insert(-1, Column("LEDGERS", lambda r: r["ledgers"], number=True))
    return out.listing(output, listing, columns, "No bookie has ever registered.")


@click.command(short_help="Under-replication marks.")
@options.listing
@options.api
def marks(api: ApiTarget, output: str) -> int:
    """List the under-replication marks in ZooKeeper with their owner and the worker that has locked them.

    \b
    Example:  trueup get marks
    """
    app = Api(api)
    columns = [
        Column("LEDGER", lambda r: str(r["ledger"])),
        Column("OWNER", lambda r: {True: "ours", False: "other", None: "unknown"}[r["ours"]]),
        Column("VERDICT", lambda r: r["verdict"]),
        Column("REPAIR", lambda r: r["stage"]),
        Column("LOCKED-BY", lambda r: r["locked_by"]),
        Column("AGE", out.ago(app, "ctime_ms")),
    ]
    return out.listing(output, app.rows("marks"), columns, "No ledger is marked.")


@click.command(short_help="Fragments, racks and evidence of a ledger.")
@click.argument("ledger", type=click.IntRange(0, (1 << 63) - 1), metavar="ID")
@options.output
@options.api
def ledger(api: ApiTarget, output: str, ledger: int) -> None:
    """Read a ledger again and show its fragments, the racks of its replicas, the reason for its verdict, and what would
    change the verdict.

    \b
    Example:  trueup describe ledger 21
    """
    app = Api(api)
    details = app.get(f"ledgers/{ledger}")
    if output == "json":
        out.as_json(details)
        return
    out.titled(_head(details, app.now_ms))
    if details["owned"] is not None:
        _owned(details["owned"], app.now_ms)
    _fragments(details["fragments"])
    out.bullets("What a copy would move", [*_moves(details["copy"])])
    out.bullets("What would change the verdict", details["changes"])
    out.bullets("Replicas reported as damaged", [_damage(damage, app.now_ms) for damage in details["damages"]])
    out.bullets("History", [_event(event, app.now_ms) for event in details["history"]])
    out.note(f"trueup explain {details['rule']}")


def _owned(owned: Row, now_ms: int) -> None:
    """Owner of the ledger, and why it may or may not be deleted."""
    use = f"{owned['reason']}, for {since(now_ms, owned['since_ms'])}" if owned["rule"] else "its owner references it"
    out.titled([("Owner", owned["owner"] or "not known"), ("For", owned["component"]), ("In use", use)])
    deletion = owned["deletion"]
    if deletion is not None:
        asked = f"; not confirmed by {many(len(deletion['pending']), 'bookie')}" if deletion["pending"] else ""
        detail = f": {deletion['detail']}" if deletion["detail"] else ""
        out.titled([("Deletion", f"{deletion['stage']}{asked}{detail}")])
    click.echo()
    out.table(owned["nodes"], NODES, "Its owner has no nodes.")
    out.bullets("Objects that no owner references, or that do not exist", owned["objects"])


def _head(details: Row, now_ms: int) -> Iterator[tuple[str, str]]:
    yield "Ledger", str(details["ledger"])
    yield "Verdict", f"{styled(details['verdict'])}, {details['rule']}"
    yield "Reason", details["reason"] + (f": {details['error']}" if details.get("error") else "")
    if details.get("since_ms"):
        yield "Since", since(now_ms, details["since_ms"])
    created = f", created {since(now_ms, details['ctime_ms'])} ago" if details["ctime_ms"] > 0 else ""
    yield "State", f"{details['state']}, version {details['version']}, mzxid {details['mzxid']:#x}{created}"
    entries = f", {many(details['last_entry'] + 1, 'entry', 'entries')}, {details['length']:,} bytes"
    shape = f"E={details['ensemble']} Qw={details['quorum']} Qa={details['ack_quorum']}"
    yield "Shape", shape + (entries if details["last_entry"] >= 0 or details["state"] == "closed" else "")
    if details["owned"] is None and details["claim"]["owner"]:
        yield "Owner", f"{details['claim']['owner']}, according to its metadata"
    if groups := details["isolation"]:
        yield "Groups", _groups(groups)
    if details["stage"]:
        yield "Repair", details["stage"]
    if mark := details["mark"]:
        worker = f"held by {mark['locked_by']}" if mark["locked_by"] else "not taken yet"
        whose = {True: "ours", False: "not ours", None: "not readable"}[mark["ours"]]
        yield "Mark", f"{whose}, {worker}, {since(now_ms, mark['ctime_ms'])} old"


def _groups(groups: Row) -> str:
    if not groups["primary"]:
        return f"not known: {groups['source']}"
    second = f", then {', '.join(groups['secondary'])}" if groups["secondary"] else ""
    outside = f"; outside: {', '.join(groups['outside'])}" if groups["outside"] else ""
    return f"{', '.join(groups['primary'])}{second}, by {groups['source']}{outside}"


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
        stands = ", ".join(window["racks"]) or "no known rack"
        yield f"window {' '.join(window['bookies'])}: {stands}, {many(window['copies'], 'live copy', 'live copies')}"
    yield from fragment.get("broken") or ()
    if fragment.get("repair"):
        yield f"repair: {fragment['repair']}"


def _moves(copy: Row | None) -> Iterator[str]:
    if copy is None:
        return
    for move in copy["moves"]:
        used = "" if move["used"] is None else f", which uses {move['used']:.0%} of its disks"
        size = f"{many(move['entries'], 'entry', 'entries')}, {move['bytes']:,} bytes"
        yield f"from entry {move['first_entry']} on: {size}, from {move['before']} to {move['after']}{used}"
    for first in copy["stuck"]:
        yield f"from entry {first} on: nothing, no bookie is left that can take its replicas"
    for first in copy["unadhering"]:
        yield f"from entry {first} on: the fragment does not adhere afterwards"


def _distinct(windows: list[Row]) -> Iterator[Row]:
    """Windows of different bookies: if E equals Qw, all windows are the same."""
    seen: set[frozenset[str]] = set()
    for window in windows:
        members = frozenset(window["bookies"])
        if members not in seen:
            seen.add(members)
            yield window


def _damage(row: Row, now_ms: int) -> str:
    what = "missing" if row["found"] == "missing" else "with a wrong digest"
    state = f"confirmed, {row['detail']}" if row["confirmed"] else f"not confirmed: {row['detail'] or 'not read yet'}"
    seen = f"reported {since(now_ms, row['at_ms'])} ago by {row['reporter']}"
    return f"{row['bookie']}: entries {row['first']} to {row['last']} {what}, {seen}; {state}"


def _event(event: Row, now_ms: int) -> str:
    detail = f": {event['detail']}" if event["detail"] else ""
    by = f" by {event['by']}" if event.get("by", "trueup") != "trueup" else ""
    return f"{since(now_ms, event['at_ms'])} ago, {event['event']}{by}{detail}"


def _findings(app: Api) -> list[Column]:
    return [
        Column("LEDGER", lambda r: str(r["ledger"])),
        Column("VERDICT", lambda r: r["verdict"]),
        Column("RULE", lambda r: short(r["rule"])),
        Column("COPIES", lambda r: r["copies"], number=True),
        Column("RACKS", lambda r: r["racks"], number=True),
        Column("REPAIR", lambda r: r["stage"] or ("held" if r["held"] else "marked" if r["marked"] else "")),
        Column("SINCE", out.ago(app, "since_ms")),
        Column("REASON", lambda r: r["reason"], clips=True),
    ]


COMMANDS = Commands(
    findings=_findings, get=(ledgers, bookies, marks, drains), describe=(ledger,), groups=(drain, undrain)
)
