"""trueup read: the messages of a topic, without a broker."""

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trueup.state.common.counts import many
from trueup.state.common.errors import Stop
from trueup.state.read_priority.tiers import ReadPriority
from trueup.streams.cli import configuration
from trueup.streams.rows import Row
from trueup.streams.terminal import client, codes, options, out

if TYPE_CHECKING:
    from trueup.streams.topic_reader.reader import Range, ReadReport, TopicMessage
    from trueup.streams.topic_reader.topics import TopicCatalog

_LINE = "{:<16}  {:<24}  {:<10}  {:<12}  {}"
_SHOWN = 48


@click.command(short_help="Read the messages of a topic from bookies and tiered storage.")
@click.argument("topic")
@click.option(
    "--from",
    "begin",
    metavar="POSITION",
    default="earliest",
    show_default=True,
    help="Start: earliest, a message id LEDGER:ENTRY (its whole batch), or a time such as 2026-01-31T12:00:00Z.",
)
@click.option(
    "--to",
    "end",
    metavar="POSITION",
    default="latest",
    show_default=True,
    help="End: latest, a message id (included, with its whole batch), or a publish time (excluded).",
)
@click.option("--limit", type=click.IntRange(1), help="Maximum number of messages.  [default: all]")
@click.option(
    "--priority",
    type=click.Choice([p.value for p in ReadPriority]),
    default="bookkeeper-first",
    show_default=True,
    help="The tier to read first. The other one is read where it fails.",
)
@click.option(
    "--missing",
    type=click.Choice(["stop", "skip"]),
    default="stop",
    show_default=True,
    help="What to do about entries that no tier has, and ledgers that are trimmed meanwhile.",
)
@click.option("--transactions", is_flag=True, help="Include messages of transactions, even of aborted ones.")
@options.report_to
@options.output
@options.configuration
def read(
    topic: str,
    begin: str,
    end: str,
    limit: int | None,
    priority: str,
    missing: str,
    transactions: bool,
    report_to: client.ApiTarget,
    output: str,
    path: Path | None,
    pairs: tuple[str, ...],
) -> int:
    """Read the messages of a Pulsar topic from bookies and tiered storage. No broker is involved, and nothing is
    changed: ledgers are not fenced, cursors do not move.

    TOPIC is TENANT/NAMESPACE/NAME; all partitions of a partitioned topic are read, one after the other. The read ends
    at the last confirmed entry. Where the preferred tier fails, the other one is read; a summary on stderr names each
    ledger and the reason. With --report-to a running Trueup receives the bookies whose replicas were missing or
    damaged, reads them itself, and shows what it found as findings of placement. If it has tokens, it requires one with
    the role reporter.

    With -o json each line is one message, and the summary is one object: {"messages", "entries", "notes"}. A key, value
    or ordering key that is not UTF-8 text is in the field with the suffix _base64.

    \b
    Example:  trueup read tenant/namespace/orders -c trueup.yaml --limit 10
    """
    settings = configuration.settings(path, pairs)
    from trueup.streams.topic_reader import damage_report
    from trueup.streams.topic_reader.reader import ReadOptions
    from trueup.streams.topic_reader.topics import opened

    span, how = _range(begin, end), ReadOptions(ReadPriority(priority), missing == "skip", transactions)
    with opened(settings, how) as topics:
        try:
            messages = _messages(topics, topic, span)
            _print(messages if limit is None else islice(messages, limit), output)
        finally:
            for line in (_count(topics.report), *_notes(topics.report)):
                out.aside(line)
            unsent = damage_report.send(lambda: report_to, topics.report)
        if output == "json":
            click.echo(json.dumps(_summary(topics.report, unsent)), err=True)
    return code_of(topics.report)


def code_of(report: "ReadReport") -> int:
    """The exit code after a read without an error."""
    return codes.INCOMPLETE if report.missing or report.trimmed else codes.OK


def _messages(topics: "TopicCatalog", name: str, span: "Range") -> "Iterator[TopicMessage]":
    for topic in topics.partitions(name):
        yield from topics.read(topic, span)


def _range(begin: str, end: str) -> "Range":
    from trueup.streams.topic_reader.limits import range_of

    try:
        return range_of(begin, end)
    except Stop as error:
        raise click.UsageError(f"--from and --to: expected {error.expected}; found {error.found}") from None


def _print(messages: "Iterator[TopicMessage]", output: str) -> None:
    if output == "json":
        for topic_message in messages:
            click.echo(json.dumps(as_record(topic_message)))
        return
    click.echo(_LINE.format("MESSAGE ID", "PUBLISHED", "TIER", "KEY", "VALUE"))
    for topic_message in messages:
        message = topic_message.message
        shown = _time(message.publish_ms), topic_message.tier, _shown(message.key, 12), _shown(message.value, _SHOWN)
        click.echo(_LINE.format(_id(topic_message), *shown).rstrip())


def as_record(topic_message: "TopicMessage") -> Row:
    """A message as the object that -o json prints."""
    message = topic_message.message
    return {
        "topic": str(topic_message.topic),
        "partition": topic_message.topic.partition,
        "id": _id(topic_message),
        "ledger": message.ledger,
        "entry": message.entry,
        "batch_index": message.batch_index,
        "tier": topic_message.tier.value,
        "publish_ms": message.publish_ms,
        "event_ms": message.event_ms,
        "producer": message.producer,
        "sequence": message.sequence,
        "encrypted": message.encrypted,
        "properties": [*map(list, message.properties)],
        **_bytes("key", message.key),
        **_bytes("ordering_key", message.ordering_key),
        **_bytes("value", message.value),
    }


def _id(topic_message: "TopicMessage") -> str:
    message = topic_message.message
    entry_id = f"{message.ledger}:{message.entry}"
    return entry_id if message.batch_index < 0 else f"{entry_id}:{message.batch_index}"


def _bytes(name: str, value: bytes | None) -> dict[str, str | None]:
    try:
        return {name: None if value is None else value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value or b"").decode()}


def _shown(value: bytes | None, most: int) -> str:
    """At most ``most`` characters of a key or value, without control characters."""
    if value is None:
        return "-"
    text = value[: 4 * most].decode(errors="replace")
    clean = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    return clean if len(clean) <= most else f"{clean[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


def _time(at_ms: int) -> str:
    try:
        return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms"


def _count(report: "ReadReport") -> str:
    """How much was read, and from where."""
    tiers = ", ".join(f"{count:,} from {tier}" for tier, count in sorted(report.entries.items()))
    return f"{many(report.messages, 'message')}; entries: {tiers or 'none'}"


def _notes(report: "ReadReport") -> Iterator[str]:
    """What was not as it should be."""
    for fallback in report.fallbacks.values():
        yield f"ledger {fallback.ledger}: from entry {fallback.entry} on not from {fallback.tier}: {fallback.reason}"
    for damage in report.damages.values():
        yield f"ledger {damage.ledger}: entry {damage.entry} not from bookie {damage.bookie}: {damage.found}"
    for ledger, count in sorted(report.missing.items()):
        yield f"ledger {ledger}: {many(count, 'entry', 'entries')} skipped that no tier has"
    for ledger in report.trimmed:
        yield f"ledger {ledger}: trimmed during the read"
    if report.chunks:
        yield f"{many(report.chunks, 'chunk')} of incomplete messages dropped"


def _summary(report: "ReadReport", unsent: str) -> dict[str, object]:
    """What was read as the object that -o json prints on stderr."""
    entries = {tier.value: count for tier, count in sorted(report.entries.items())}
    return {"messages": report.messages, "entries": entries, "notes": [*_notes(report), *filter(None, [unsent])]}
