"""trueup doctor."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import click

from trueup.state.common.counts import many
from trueup.state.settings.settings import Settings
from trueup.streams.catalog import STREAMS
from trueup.streams.cli import configuration
from trueup.streams.runtime.checks import Check, tried
from trueup.streams.terminal import codes, options, out


@click.command(short_help="Check the requirements and show how to fix problems.")
@options.configuration
@click.option("--skip-spark", is_flag=True, help="Skip Spark's self-test, which takes half a minute.")
@click.option("--all", "every", is_flag=True, help="Also show the checks that pass.")
@options.formats
def doctor(path: Path | None, pairs: tuple[str, ...], output: str, skip_spark: bool, every: bool) -> int:
    """Check the requirements of Trueup and show how to fix problems: Java and jars, disk space and port, the journal,
    ZooKeeper and its permissions, bookies and racks, the repair setting and the racks of AutoRecovery workers, the
    clusters of links, and the log directories of brokers. Changes nothing. Prints each problem as soon as it is found.
    Exits with 1 if a check fails.

    \b
    Example:  trueup doctor -c conf/trueup.yaml
    """
    settings = configuration.settings(path, pairs)
    checks = []
    with out.progress("looking") as better:
        for check in examined(settings, better, skip_spark):
            checks.append(check)
            if every or check.status != "ok":
                _show(check, output)
    if not out.structured(output, [asdict(check) for check in checks]) and output != "name":
        failed, warned = (sum(check.status == status for check in checks) for status in ("fail", "warn"))
        click.echo(f"\n{many(len(checks), 'check')}, {failed} failed, {many(warned, 'warning')}")
    return codes.ATTENTION if any(check.status == "fail" for check in checks) else codes.OK


def _show(check: Check, output: str) -> None:
    """Print one check as soon as its result is known; JSON and YAML contain all at the end."""
    if output in ("json", "yaml"):
        return
    if output == "name":
        click.echo(check.name)
        return
    text = check.found + (f" -> {check.todo}" if check.todo else "")
    click.echo(f"{out.styled(f'{check.status:4}', check.status)}  {check.name}: {text}")


def examined(settings: Settings, progress: Callable[[str], None], skip_spark: bool) -> Iterator[Check]:
    """All checks, in the order in which Trueup needs the results."""
    from trueup.streams.cli import machine

    for name, look in machine.all_of(settings, progress):
        progress(f"checking {name}")
        yield from tried(name, look)
    for stream in STREAMS:
        progress(f"checking {stream.name}")
        yield from tried(stream.name, lambda checks=stream.checks: checks(settings))  # type: ignore[misc]
    if not skip_spark:
        progress("checking Spark")
        yield from tried("spark", lambda: machine.spark(settings))
