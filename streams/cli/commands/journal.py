"""trueup journal: what is done to the journal while no application runs."""

from pathlib import Path

import click

from trueup.streams.cli import codes, options, out


@click.group(short_help="Have the journal forget a cluster that was restored.")
def journal() -> None:
    """Look after the journal while Trueup does not run.

    \b
    Example:  trueup journal begin-anew -c trueup.yaml --yes
    """


@journal.command("begin-anew", short_help="Forget all that was observed of ZooKeeper.")
@options.configuration
@click.option("--yes", "certain", is_flag=True, help="Do it. Without this the topics are only named.")
def begin_anew(path: Path | None, pairs: tuple[str, ...], certain: bool) -> int:
    """Have the journal forget what was observed of BookKeeper's ZooKeeper, and what was decided on it.

    For a ZooKeeper that was restored from a copy or replaced: Trueup notices that its history is not the one that was
    observed, and changes nothing. Stop every Trueup that uses the journal, and run this with the same settings. The
    next `trueup run` reads everything afresh: every grace period begins anew, approvals are gone, and deletions that
    were begun are judged again. Settings, links and log directories are kept.

    Exits with 3 without --yes.

    \b
    Example:  trueup journal begin-anew -c trueup.yaml --yes
    """
    chosen = options.settings(path, pairs)
    from trueup.streams.bookkeeper import anew

    if not certain:
        click.echo(f"Topics that will be emptied: {', '.join(anew.FORGOTTEN)}. Repeat it with --yes to have it done.")
        return codes.CHANGES
    with out.progress("beginning anew"):
        forgotten = anew.begin_anew(chosen)
    click.echo(f"Forgotten: {', '.join(forgotten)}. `trueup run` reads everything afresh.")
    return codes.OK
