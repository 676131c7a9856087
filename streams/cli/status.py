"""trueup status."""

import time

import click

from state.errors import Retry
from streams.cli import codes, options, out
from streams.cli.client import Api
from streams.cli.out import Column, Row, styled
from streams.health import Health, health
from streams.words import age, since

POLL_S = 0.5
SOURCES = (
    Column("SOURCE", lambda r: r["name"]),
    Column("STATE", lambda r: r["state"]),
    Column("HEARD", lambda r: f"{age(r['age_ms'])} ago"),
    Column("DETAIL", lambda r: r["detail"], wraps=True),
)
STREAMS = (
    Column("STREAM", lambda r: r["name"]),
    Column("STATE", lambda r: r["state"]),
    Column("BATCH-MS", lambda r: r["batch_ms"], number=True),
    Column("ROWS/S", lambda r: f"{r['rows_per_s']:,.0f}", number=True),
    Column("BEHIND", lambda r: r["behind"], number=True),
    Column("RESTARTS", lambda r: r["restarts"], number=True),
)


@click.command(short_help="Healthy or not, and why.")
@click.option(
    "--wait", "wait_s", type=float, metavar="SECONDS", default=0, help="Wait until it is healthy, at most so long."
)
@options.output
@options.api
def status(api: str, output: str, wait_s: float) -> int:
    """Say whether the cluster is as it should be, and why not.

    Healthy means: every ledger is true, every source was heard lately, and every stream runs. Exits with 0 when
    healthy, else with 1; with 4 when Trueup does not answer.

    \b
    Example:  trueup status --wait 60
    """
    with out.progress("waiting until it is healthy"):
        found, said = _healthy(Api(api), time.monotonic() + wait_s)
    if output == "json":
        out.as_json({**found, "health": said.level, "reasons": list(said.reasons)})
    else:
        _show(found, said)
    return codes.OK if said.level == "healthy" else codes.ATTENTION


def _healthy(api: Api, deadline: float) -> tuple[Row, Health]:
    """The status once it is healthy, or as it is when time runs out."""
    while True:
        late = time.monotonic() >= deadline
        try:
            found = api.get("status")
            if late or health(found).level == "healthy":
                return found, health(found)
        except Retry:
            if late:
                raise
        time.sleep(POLL_S)


def _show(found: Row, said: Health) -> None:
    click.echo(styled(said.line, said.level))
    for reason in said.reasons:
        click.echo(f"  - {reason}")
    counts, marks = found["counts"], found["marks"]
    mode = found["mode"] + (", paused" if found["paused"] else "")
    click.echo(f"\nCluster  {found['cluster']}, mode {mode}, up {since(found['now_ms'], found['started_ms'])}")
    click.echo("Ledgers  " + ", ".join(f"{count:,} {verdict}" for verdict, count in counts.items()))
    click.echo(f"Marks    {marks['outstanding']:,} outstanding of {marks['cap']:,} at most, {marks['ours']:,} ours\n")
    out.table(found["sources"], SOURCES, "No source has been heard yet.")
    click.echo()
    out.table(found["streams"], STREAMS, "No stream has reported yet.")
