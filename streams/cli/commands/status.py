"""trueup status."""

import time
from collections.abc import Callable

import click

from trueup.state.common.errors import Retry
from trueup.state.placement.readiness import few
from trueup.streams.health import Health, health
from trueup.streams.rows import Row
from trueup.streams.runtime.format import ago, since
from trueup.streams.terminal import codes, options, out
from trueup.streams.terminal.client import Api, ApiTarget
from trueup.streams.terminal.out import Column, styled

POLL_S = 0.5
SOURCES = (
    Column("SOURCE", lambda r: r["name"]),
    Column("STATE", lambda r: r["state"]),
    Column("HEARD", lambda r: ago(r["age_ms"])),
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


@click.command(short_help="Show the health and its reasons.")
@click.option(
    "--wait",
    "wait_s",
    type=float,
    metavar="SECONDS",
    default=0,
    help="Maximum time to wait until the cluster is healthy.",
)
@click.option(
    "--ready", is_flag=True, help="Wait only until Trueup is ready: all ledgers have been judged, with any verdict."
)
@options.output
@options.api
def status(api: ApiTarget, output: str, wait_s: float, ready: bool) -> int:
    """Show whether the cluster is healthy, and the reasons if it is not.

    Healthy means: every ledger is true, log directories are balanced, every source was observed recently, and every
    stream runs. Exits with 0 if healthy (with --ready: if ready), with 1 if not, and with 4 if Trueup does not respond.

    A ledger whose current version has no verdict is unknown: it is not judged yet. Trueup becomes ready when all
    ledgers that existed at its start have been judged. It is no longer ready when more than 1% of the ledgers have not
    been judged for 10 s. --ready additionally waits until at most 1% of the ledgers are not judged.

    \b
    Example:  trueup status --wait 60
    """
    app = Api(api)
    with out.progress(f"waiting until it is {'ready' if ready else 'healthy'}") as better:
        state, result = _awaited(app, time.monotonic() + wait_s, ready, better)
    if output == "json":
        out.as_json({**state, "health": result.level, "reasons": list(result.reasons)})
    else:
        _show(state, result)
    return codes.OK if _good(state, result, ready) else codes.ATTENTION


def _good(state: Row, result: Health, ready: bool) -> bool:
    return bool(state["ready"]) and few(state["not_judged"], state["ledgers"]) if ready else result.level == "healthy"


def _awaited(api: Api, deadline: float, ready: bool, better: Callable[[str], None]) -> tuple[Row, Health]:
    """The status once it is as requested, or the last one when time runs out."""
    while True:
        late = time.monotonic() >= deadline
        try:
            state = api.get("status")
            result = health(state)
            if late or _good(state, result, ready):
                return state, result
            better(result.line)
        except Retry as error:
            if late:
                raise
            better(f"waiting for a response of {api.base}: {error.found}")
        time.sleep(POLL_S)


def _show(state: Row, result: Health) -> None:
    click.echo(styled(result.line, result.level))
    for reason in result.reasons:
        click.echo(f"  - {reason}")
    mode = f", mode {state['mode']}" + (", paused" if state["paused"] else "") if state["watches_ledgers"] else ""
    click.echo(f"\nCluster  {state['cluster']}{mode}, up {since(state['now_ms'], state['started_ms'])}")
    if ha := state.get("ha"):
        others = ", ".join(ha["standbys"]) or "none seen"
        click.echo(f"{'Role':8} {ha['role']}, epoch {ha['epoch']}; other standbys: {others}")
    for title, text in result.lines:
        click.echo(f"{title:8} {text}")
    click.echo()
    out.table(state["sources"], SOURCES, "No source has been observed yet.")
    click.echo()
    out.table(state["streams"], STREAMS, "No stream has reported yet.")
