"""trueup describe ledger, link and broker."""

from collections.abc import Iterable, Iterator

import click

from trueup.streams.cli import options, out
from trueup.streams.cli.out import Column, Row, styled
from trueup.streams.runtime.format import age, many, since, size
from trueup.streams.web.client import Api, segment

MEMBERS = (
    Column("  ENTRIES", lambda r: f"  {r['entries']}" if r["entries"] else "  "),
    Column("BOOKIE", lambda r: r["bookie"]),
    Column("RACK", lambda r: r["rack"]),
    Column("STATUS", lambda r: r["status"]),
)


COPIES = (
    Column("TOPIC", lambda r: r["topic"]),
    Column("PARTITION", lambda r: r["partition"], number=True),
    Column("TO", lambda r: f"{r['target_topic']}-{r['target_partition']}"),
    Column("COPIED-TO", lambda r: r["offset"] if r["offset"] >= 0 else "", number=True),
    Column("SOURCE-END", lambda r: r["source_end"] if r["source_end"] >= 0 else "", number=True),
    Column("TARGET-END", lambda r: r["target_end"] if r["target_end"] >= 0 else "", number=True),
    Column("LAG", lambda r: r["lag_records"] if r["lag_records"] >= 0 else "", number=True),
    Column("AGE", lambda r: age(r["lag_ms"]) if r["lag_ms"] >= 0 else "", number=True),
    Column("PATH", lambda r: r["path"]),
    Column("STAGE", lambda r: r["stage"]),
)


CHECKPOINTS = (
    Column("GROUP", lambda r: r["group"]),
    Column("FROM", lambda r: r["source"]),
    Column("COMMITTED", lambda r: r["committed"], number=True),
    Column("TO", lambda r: r["target"]),
    Column("TRANSLATED", lambda r: r["translated"] if r["translated"] >= 0 else "", number=True),
    Column("PRESENT", lambda r: r["present"] if r["present"] >= 0 else "", number=True),
    Column("ACTION", lambda r: r["action"]),
    Column("REASON", lambda r: r["reason"], clips=True),
)


MOVES = (
    Column("ACTION", lambda r: r["id"]),
    Column("ABOUT", lambda r: r["topic"]),
    Column("STAGE", lambda r: r["stage"]),
    Column("WHAT", lambda r: r["reason"], clips=True),
)


LARGEST = (
    Column("REPLICA", lambda r: f"{r['topic']}-{r['partition']}"),
    Column("BYTES", lambda r: size(r["bytes"]), number=True),
    Column("DIRECTORY", lambda r: r["path"]),
)

NODES = (
    Column("NODE", lambda r: r["path"]),
    Column("READ", lambda r: r["error"] or r["status"], clips=True),
    Column("POINTS", lambda r: "yes" if r["points"] else "no"),
    Column("LEDGERS", lambda r: r["ledgers"], number=True),
    Column("HIGHEST", lambda r: "" if r["highest"] is None else str(r["highest"]), number=True),
)


@click.group(short_help="Show the details of a resource.")
def describe() -> None:
    """Show the details of a resource with the evidence for its verdict.

    \b
    Example:  trueup describe ledger 21
    """


@describe.command(short_help="Fragments, racks and evidence of a ledger.")
@click.argument("ledger", type=click.IntRange(0, (1 << 63) - 1), metavar="ID")
@options.output
@options.api
def ledger(api: str, output: str, ledger: int) -> None:
    """Read a ledger again and show its fragments, the racks of its replicas, the reason for its verdict, and what would
    change the verdict.

    \b
    Example:  trueup describe ledger 21
    """
    app = Api(api)
    found = app.get(f"ledgers/{ledger}")
    if output == "json":
        out.as_json(found)
        return
    _titled(_head(found, app.now_ms))
    if found["owned"] is not None:
        _owned(found["owned"], app.now_ms)
    _fragments(found["fragments"])
    _list("What would change the verdict", found["changes"])
    _list("History", [_event(event, app.now_ms) for event in found["history"]])
    out.note(f"trueup explain {found['rule']}")


@describe.command(short_help="State and partitions of a link.")
@click.argument("name")
@options.output
@options.api
def link(api: str, output: str, name: str) -> None:
    """Show the state of a link with its reasons, the counts of its records, and each partition.

    \b
    Example:  trueup describe link east-west
    """
    app = Api(api)
    found = app.get(f"links/{segment(name)}")
    if output == "json":
        out.as_json(found)
        return
    _titled(_link_head(found, app.now_ms))
    if len(found["by_topic"]) > 1:
        click.echo()
        out.table(found["by_topic"], out.TOPIC, "")
    click.echo()
    out.table(found["copies"], COPIES, "The link has no partition.")
    if found["checkpoints"]:
        click.echo()
        out.table(found["checkpoints"], CHECKPOINTS, "")
    said = [f"{c['topic']}-{c['partition']}: {c['error']}" for c in found["copies"] if c["error"]]
    _list("Problems", [*said, *found["unreadable"]])
    _list("Remedies", [f"{each['rule']}: {each['remedy']}" for each in found["remedies"]])


@describe.command(short_help="Log directories of a broker, and planned moves.")
@click.argument("broker", metavar="CLUSTER/ID")
@options.output
@options.api
def broker(api: str, output: str, broker: str) -> None:
    """Query a broker and show its log directories, its rule and the reason, the planned moves, and the largest
    replicas.

    \b
    Example:  trueup describe broker east/1
    """
    kafka, _, number = broker.partition("/")
    if not kafka or not number.isdecimal():
        raise click.BadParameter(f"expected CLUSTER/ID, as east/1; found {broker!r}", param_hint="CLUSTER/ID")
    app = Api(api)
    found = app.get(f"brokers/{segment(kafka)}/{number}")
    if output == "json":
        out.as_json(found)
        return
    _titled(_broker_head(found, app.now_ms))
    for title, rows, columns in (
        ("Directories", found["directories"], out.DIRECTORY), ("Moves", found["moves"], MOVES),
        ("Largest replicas", found["largest"], LARGEST),
    ):  # fmt: skip
        click.echo(f"\n{title}")
        out.table(rows, columns, "None.")
    if found["rule"]:
        out.note(f"trueup explain {found['rule']}")


def _owned(found: Row, now_ms: int) -> None:
    """Whose it is, and why it may or may not go."""
    said = f"{found['reason']}, for {since(now_ms, found['since_ms'])}" if found["rule"] else "its owner points to it"
    _titled([("Owner", found["owner"] or "not known"), ("For", found["component"]), ("In use", said)])
    marker = found["marker"]
    if marker is not None:
        asked = f"; {many(len(marker['pending']), 'bookie')} yet to say that it is gone" if marker["pending"] else ""
        _titled([("Deletion", f"{marker['stage']}{asked}{': ' + marker['detail'] if marker['detail'] else ''}")])
    click.echo()
    out.table(found["nodes"], NODES, "No node of its owner is there.")
    _list("Objects that no owner points to, or that are not there", found["objects"])


def _titled(lines: Iterable[tuple[str, str]]) -> None:
    for title, text in lines:
        click.echo(f"{title:11}{text}")


def _broker_head(found: Row, now_ms: int) -> Iterator[tuple[str, str]]:
    yield (
        "Broker",
        f"{found['kafka']}/{found['broker']}, mode {found['mode']}, seen {since(now_ms, found['at_ms'])} ago",
    )
    yield "Strategy", found["strategy"]
    yield "Skew", f"{found['skew']:.1%}" + (f", {found['after']:.1%} after the plan" if found["moves"] else "")
    if found["rule"]:
        yield "Rule", f"{found['rule']}: {found['reason']}"
    if found["throttles"]:
        yield "Throttle", f"{size(max(found['throttles']))}/s, ours"


def _link_head(found: Row, now_ms: int) -> Iterator[tuple[str, str]]:
    yield "Link", f"{found['link']}, {found['source']} to {found['target']}"
    yield (
        "State",
        f"{styled(found['state'])}, mode {found['mode']}" + (f": {found['reason']}" if found["reason"] else ""),
    )
    yield "Path", f"{found['path']}" + (f": {found['path_reason']}" if found["path_reason"] else "")
    yield (
        "Lag",
        f"{many(found['lag_records'], 'record')}"
        + (f", the oldest {age(found['lag_ms'])} old" if found["lag_ms"] > 0 else ""),
    )
    if found["rounds"]:
        yield "Leases", f"{many(found['rounds'], 'round')}, the last ended {since(now_ms, found['taken_ms'])} ago"
    beat = found["heartbeat_age_ms"]
    arrived = f"{age(beat)} old, took {found['heartbeat_lag_ms']} ms" if beat >= 0 else "none arrived yet"
    yield "Heartbeat", arrived + (f"; {found['heartbeat_error']}" if found["heartbeat_error"] else "")
    if found["differences"]:
        yield "Target", f"{many(found['differences'], 'difference')}: trueup plan"
    counted = ("copied", "skipped", "dropped", "filtered", "dismissed", "lost", "repeated", "foreign")
    yield "Records", ", ".join(f"{found[name]:,} {name}" for name in counted if found[name] or name == "copied")
    yield "Bytes", size(found["bytes"])
    if found["error"]:
        yield "Problem", found["error"]


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
