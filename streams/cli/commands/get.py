"""trueup get: lists of resources, one row each."""

import click

from trueup.streams.catalog import STREAMS, rules
from trueup.streams.cli.resources import Lists
from trueup.streams.runtime.format import short
from trueup.streams.terminal import options, out
from trueup.streams.terminal.client import Api, ApiTarget
from trueup.streams.terminal.out import Column
from trueup.streams.web.engine import VERDICTS


@click.group(cls=Lists, short_help="List findings, actions and the resources of each stream.")
def get() -> None:
    """List resources, one per row, in order of risk.

    A list may be incomplete until all ledgers have been judged once, while more than 1% of the ledgers are not judged,
    and while a source cannot be observed. The command then prints a note and exits with 6. With -o json the rows are an
    array; an incomplete list is {"incomplete": "why", "shown": 1, "total": 1, "rows": [...]} instead, so that scripts
    do not mistake it for a complete list. If --limit truncates a list, the last line is "100 of 1,026"; with -o json
    stderr contains {"shown": 100, "total": 1026}.

    \b
    Example:  trueup get findings --verdict drifted -o json
    """


@get.command(short_help="Ledgers with a verdict other than true.")
@click.option("--verdict", type=click.Choice(VERDICTS[1:]), help="Show only findings with this verdict.")
@click.option("--rule", metavar="RULE", help="Show only findings of this rule; `trueup explain` lists the rules.")
@click.option(
    "--stream", metavar="STREAM", default=STREAMS[0].name, show_default=True, help="Show findings of this stream."
)
@options.bookie
@options.namespace
@options.limit(100)
@options.listing
@options.api
def findings(
    api: ApiTarget,
    output: str,
    verdict: str | None,
    rule: str | None,
    stream: str,
    bookie: str | None,
    namespace: str | None,
    limit: int,
) -> int:
    """List ledgers with a verdict other than true: the rule, the smallest number of live replicas and racks, and the
    age of the finding. With --stream, list the findings of another stream: deletion and read_priority know --namespace,
    the others neither --namespace nor --bookie.

    \b
    Example:  trueup get findings --rule too-few-racks --namespace public/default
    """
    app = Api(api)
    response = app.rows(
        "findings",
        verdict=verdict,
        rule=full_rule(rule),
        limit=limit,
        stream=stream,
        bookie=bookie,
        namespace=namespace,
    )
    columns = next((descriptor.commands().findings for descriptor in STREAMS if descriptor.name == stream), None)
    return out.listing(output, response, (columns or _anything)(app), "No findings.")


def _anything(app: Api) -> list[Column]:
    return [
        Column("ABOUT", lambda r: r["about"]),
        Column("VERDICT", lambda r: r["verdict"]),
        Column("RULE", lambda r: short(r["rule"])),
        Column("STAGE", lambda r: r["stage"]),
        Column("SINCE", out.ago(app, "since_ms")),
        Column("REASON", lambda r: r["reason"], clips=True),
    ]


@get.command(short_help="Executed actions, newest first.")
@options.limit(50)
@options.listing
@options.api
def actions(api: ApiTarget, output: str, limit: int) -> int:
    """List executed actions: transitions of repairs, deletions and moves, changes made by links, and requests of
    operators. RULE is the reason. WHO is trueup, or the user and address of the request. The journal keeps actions for
    journal.history_days.

    \b
    Example:  trueup get actions --limit 10
    """
    app = Api(api)
    columns = [
        Column("ACTION", lambda r: r["id"]),
        Column("ABOUT", lambda r: str(out.first(r, "link", "broker", "ledger"))),
        Column("OUTCOME", lambda r: r["outcome"]),
        Column("RULE", lambda r: short(r["rule"])),
        Column("WHO", lambda r: r["who"]),
        Column("AGE", out.ago(app, "at_ms")),
        Column("DETAIL", lambda r: r["detail"], clips=True),
    ]
    return out.listing(output, app.rows("actions", limit=limit), columns, "No actions have been executed.")


def full_rule(rule: str | None) -> str | None:
    """Full id of a rule, which may be given without its stream."""
    if rule is None or rules().find(rule):
        return rule
    return next((candidate.id for candidate in rules() if short(candidate.id) == rule), rule)
