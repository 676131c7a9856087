"""trueup doctor."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import click

from state.settings import Settings
from streams.cli import codes, options, out
from streams.cli.checks import Check, tried
from streams.cli.out import Column
from streams.words import many

COLUMNS = (
    Column("CHECK", lambda r: r["name"]),
    Column("STATUS", lambda r: r["status"]),
    Column("FOUND", lambda r: r["found"] + (f" -> {r['todo']}" if r["todo"] else ""), wraps=True),
)


@click.command(short_help="Whether everything Trueup needs is there, and what to do where not.")
@options.configuration
@click.option("--skip-spark", is_flag=True, help="Leave out Spark's self-test, which takes half a minute.")
@options.output
def doctor(path: Path | None, pairs: tuple[str, ...], output: str, skip_spark: bool) -> int:
    """Check what Trueup needs, and say what to do about what is missing: Java and jars, room and port, the journal,
    ZooKeeper and the rights there, bookies and racks, whether AutoRecovery workers carry the repair flag and see the
    same racks, whether the clusters of links answer and are two, and whether brokers tell their log directories.
    Changes nothing. Exits with 1 when a check failed.

    \b
    Example:  trueup doctor -c conf/trueup.yaml
    """
    settings = options.settings(path, pairs)
    with out.progress("looking") as better:
        checks = list(examined(settings, better, skip_spark))
    rows = [asdict(check) for check in checks]
    if output == "json":
        out.as_json(rows)
    else:
        out.table(rows, COLUMNS, "No checks.")
        failed, warned = (sum(check.status == status for check in checks) for status in ("fail", "warn"))
        click.echo(f"\n{many(len(checks), 'check')}, {failed} failed, {many(warned, 'warning')}")
    return codes.ATTENTION if any(check.status == "fail" for check in checks) else codes.OK


def examined(settings: Settings, progress: Callable[[str], None], skip_spark: bool) -> Iterator[Check]:
    """Every check there is, in the order in which things are needed."""
    from streams.cli.checks import cluster, links, logdirs, machine, stores

    for name, look in machine.all_of(settings, progress):
        progress(f"looking at {name}")
        yield from tried(name, look)
    if settings.cluster.zookeeper:
        progress("looking at the cluster")
        yield from tried("zookeeper", lambda: cluster.all_of(settings))
    yield from stores.all_of(settings)
    progress("looking at links")
    yield from links.all_of(settings)
    progress("looking at log directories")
    yield from logdirs.all_of(settings)
    if not skip_spark:
        progress("trying Spark")
        yield from tried("spark", lambda: machine.spark(settings))
