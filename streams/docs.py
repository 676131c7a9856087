"""Pages that are printed from the code they describe: `python -m trueup.streams.docs` writes them all."""

from collections.abc import Callable, Iterator
from pathlib import Path

import click

from trueup.state.common.lifecycle import diagram
from trueup.state.common.rules import Rule, Verdict
from trueup.state.deletion import lifecycle as markers
from trueup.state.logdirs import lifecycle
from trueup.state.placement.lifecycle import ENDS, TRANSITIONS
from trueup.state.replication import status
from trueup.state.replication.rules import EVERY_RULE
from trueup.streams.cli.main import cli
from trueup.streams.config import file
from trueup.streams.runtime import metrics

HELP_WIDTH = 100
MEANINGS = {
    Verdict.TRUE: "as it should be",
    Verdict.DRIFTED: "not as it should be, and it can be mended; the only verdict that is ever acted upon",
    Verdict.BLOCKED: "not as it should be, and no remedy exists now; the reason says what would change that",
    Verdict.UNKNOWN: "nothing can be said; nothing is ever changed on it",
}
STAGES = """# The life of a repair

Generated from the table in `state/placement/lifecycle.py` by `python -m trueup.streams.docs`; a test compares.

BookKeeper repairs; Trueup writes the mark that asks for it and watches. A repair is `safe` when the ledger's own
metadata and the liveness of its bookies say so: a mark that went away proves nothing. An event that the table does not
know is refused and changes nothing.

"""

MOVES = """# The life of a move between log directories

Generated from the table in `state/logdirs/lifecycle.py` by `python -m trueup.streams.docs`; a test compares.

The broker copies; Trueup orders, and looks with DescribeLogDirs how far it is. Every order is on the journal before it
is sent. A move has `arrived` when the replica is in its target and no copy is under way, and is `done` when what it
left behind is deleted (file.delete.delay.ms). One that the broker forgot is ordered again while the plan holds it.

"""

DELETIONS = """# The life of a deletion

Generated from the table in `state/deletion/lifecycle.py` by `python -m trueup.streams.docs`; a test compares.

A marker is on the journal before anything is done on its behalf, and stays until storage confirms: the ledger's
metadata are gone, and every bookie that any of its ensembles named says that it has no such ledger. What is tried in
vain is tried again with growing waits, an hour at most. See [deletion.md](deletion.md) for what is deleted at all.

"""

LINKS = """# The states of a link

Generated from the tables in `state/replication/status.py` by `python -m trueup.streams.docs`; a test compares.

A state is derived from the progress of the link's partitions, its heartbeats and the answers of both clusters each
time it is asked for: a link whose records should move and do not is never `up`. Where several states hold, the first in
this order is reported, and every reason is listed with the rule that `trueup explain` prints.
"""
PARTITIONS = """
## The stages of a partition

Derived likewise; where several hold, the first in this order is reported. Waits are measured by Trueup's clock from
when a record was first observed at the source, so a backfill of old records is not late. Other signs can only make the
link's state graver than its stages do.
"""


def rules() -> str:
    """docs/rules.md."""
    head = "# Rules\n\nGenerated from `state/*/rules.py` by `python -m trueup.streams.docs`; a test compares.\n"
    command = "`trueup explain RULE` prints the same; `trueup get findings --rule RULE` lists the ledgers.\n"
    verdicts = "\n".join(f"- `{verdict.name.lower()}`: {meaning}." for verdict, meaning in MEANINGS.items())
    parts = [head, f"{command}\n{verdicts}\n", *(_rule(rule) for rule in EVERY_RULE)]
    return "\n".join(parts)


def _rule(rule: Rule) -> str:
    return f"## {rule.id}\n\n`{rule.verdict.name.lower()}`: {rule.title}\n\n{rule.why}\n\n*Remedy.* {rule.remedy}\n"


def repairs() -> str:
    """docs/repairs.md."""
    return f"{STAGES}```mermaid\n{diagram(TRANSITIONS, ENDS)}```\n"


def moves() -> str:
    """docs/moves.md."""
    return f"{MOVES}```mermaid\n{diagram(lifecycle.TRANSITIONS, lifecycle.ENDS)}```\n"


def deletions() -> str:
    """docs/markers.md."""
    return f"{DELETIONS}```mermaid\n{diagram(markers.TRANSITIONS, markers.ENDS, markers.Stage.SUSPECTED)}```\n"


def links() -> str:
    """docs/links.md."""
    states = [f"| `{state}` | {meaning} |" for state, meaning in status.MEANINGS.items()]
    stages = [f"| `{stage}` | {row.holds} | {row.ends} | `{row.state}` |" for stage, row in status.STAGES.items()]
    parts = [LINKS, "| state | holds when |", "|---|---|", *states]
    parts += [PARTITIONS, "| stage | holds when | ends with | the link is |", "|---|---|---|---|", *stages]
    return "\n".join(parts) + "\n"


def commands() -> str:
    """docs/commands.md."""
    origin = "Generated from `trueup --help` and its kin by `python -m trueup.streams.docs`; a test compares."
    parts = [f"# Commands\n\n{origin}\n"]
    parts += [
        f"## {' '.join(path)}\n\n```\n{_help(path, command)}\n```\n" for path, command in _commands(cli, ("trueup",))
    ]
    return "\n".join(parts)


def _commands(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from _commands(inner, (*path, name))


def _help(path: tuple[str, ...], command: click.Command) -> str:
    names = cli.context_settings["help_option_names"]
    context = click.Context(
        command, info_name=" ".join(path), terminal_width=HELP_WIDTH, max_content_width=HELP_WIDTH,
        help_option_names=names,
    )  # fmt: skip
    return "\n".join(line.rstrip() for line in command.get_help(context).splitlines())


PAGES: dict[str, Callable[[], str]] = {
    "conf/trueup.yaml": file.reference,
    "docs/commands.md": commands,
    "docs/links.md": links,
    "docs/markers.md": deletions,
    "docs/metrics.md": metrics.reference,
    "docs/moves.md": moves,
    "docs/repairs.md": repairs,
    "docs/rules.md": rules,
}


def write(root: Path) -> list[str]:
    """Write the pages that differ; their names."""
    stale = [name for name, page in PAGES.items() if not (root / name).exists() or (root / name).read_text() != page()]
    for name in stale:
        (root / name).write_text(PAGES[name]())
    return stale


if __name__ == "__main__":
    for name in write(Path.cwd()):
        click.echo(name)
