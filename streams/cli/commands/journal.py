"""trueup journal: maintenance of the journal while no application is running."""

from pathlib import Path

import click

from trueup.state.common.counts import many
from trueup.streams.catalog import observed_topics, observing
from trueup.streams.cli import configuration
from trueup.streams.terminal import codes, options, out


@click.group(short_help="Maintain the journal, for example after a restore of ZooKeeper.")
def journal() -> None:
    """Maintain the journal while Trueup does not run.

    \b
    Example:  trueup journal rebuild -c trueup.yaml --yes
    """


@journal.command(short_help="Remove records that are not readable.")
@options.configuration
@click.option("--yes", "certain", is_flag=True, help="Execute the repair. Without --yes the records are only listed.")
def repair(path: Path | None, pairs: tuple[str, ...], certain: bool) -> int:
    """Remove the records of the journal that are not readable: Trueup did not write them, or they have no valid
    signature of journal.key_file. Trueup skips them, and `trueup status` lists them.

    If the topic still has a readable record of the same key, it is written again and takes effect. Otherwise the key is
    deleted: observations are read again at the next start, settings return to the values of the file, and approvals
    and positions are forgotten. The brokers delete the old records when they compact the topic.

    Stop every Trueup that uses the journal, and run this command with the same configuration.

    Exits with 3 if there are such records, without --yes.

    \b
    Example:  trueup journal repair -c trueup.yaml --yes
    """
    settings = configuration.settings(path, pairs)
    from trueup.streams.bookkeeper.journal_rebuild import alone_with
    from trueup.streams.journal import repair as repairs

    with alone_with(settings) as opened:
        with out.progress("reading the journal"):
            records = repairs.plan(opened)
        for bad, _, before in records:
            todo = f"the record at offset {before.offset} is written again" if before else "the key is deleted"
            click.echo(f"{bad.problem}\n  key {bad.key!r:.100}: {todo}")
        if not records:
            click.echo("All records are readable.")
            return codes.OK
        if not certain:
            click.echo("To execute it, add --yes.")
            return codes.CHANGES
        repairs.execute(opened, records)
    click.echo(f"Repaired: {many(len(records), 'record')}.")
    return codes.OK


@journal.command("rebuild", short_help="Remove all observations of ZooKeeper.")
@options.configuration
@click.option("--yes", "certain", is_flag=True, help="Execute the removal. Without --yes the topics are only listed.")
def rebuild(path: Path | None, pairs: tuple[str, ...], certain: bool) -> int:
    """Remove the observations of BookKeeper's ZooKeeper from the journal, and the decisions that are based on them.

    Use this command after ZooKeeper was restored from a copy or replaced: Trueup detects that the history differs from
    the observed one and changes nothing. Stop every Trueup that uses the journal, and run this command with the same
    configuration. The next `trueup run` reads everything again: grace periods start again, approvals are discarded, and
    deletions in progress are judged again. Settings, links and log directories are kept.

    Exits with 3 without --yes.

    \b
    Example:  trueup journal rebuild -c trueup.yaml --yes
    """
    settings = configuration.settings(path, pairs)
    from trueup.streams.bookkeeper import journal_rebuild

    topics = observed_topics()
    if not certain:
        click.echo(f"Topics to be emptied: {', '.join(topics)}. To execute it, add --yes.")
        return codes.CHANGES
    with out.progress("removing observations"):
        forgotten = journal_rebuild.rebuild(settings, topics, observing())
    click.echo(f"Emptied: {', '.join(forgotten)}. The next `trueup run` reads everything again.")
    return codes.OK
