"""Generates the pages of docs/ from the code that they describe: `python -m trueup.streams.docs`."""

from collections.abc import Callable, Iterator
from pathlib import Path

import click

from trueup.state.common.lifecycle import diagram
from trueup.state.common.rules import Rule, Verdict
from trueup.state.deletion import lifecycle as deletion
from trueup.state.logdirs import lifecycle as logdirs
from trueup.state.placement.lifecycle import ENDS, TRANSITIONS
from trueup.state.read_priority import lifecycle as reads
from trueup.state.replication import recovery, verdicts
from trueup.streams import catalog
from trueup.streams.cli.main import cli
from trueup.streams.config import file
from trueup.streams.runtime import metrics
from trueup.streams.web import roles

HELP_WIDTH = 100
MEANINGS = {
    Verdict.TRUE: "the actual state is the desired state",
    Verdict.DRIFTED: "the actual state differs and can be repaired; the only verdict that leads to actions",
    Verdict.BLOCKED: "the actual state differs and no repair is possible now; the reason shows what would change that",
    Verdict.UNKNOWN: "the state cannot be determined; no action is taken",
}
STAGES = """# The lifecycle of a repair

Generated from the table in `state/placement/lifecycle.py` by `python -m trueup.streams.docs`; a test compares.

BookKeeper's workers repair the ledger: Trueup writes the mark that requests the repair and observes the ledger. With
`placement.executor: copy`, [Trueup copies it](copy.md) itself. A repair is `safe` when the ledger's metadata name
enough live bookies on enough racks: a deleted mark proves nothing. An event that the table does not contain is refused
and changes nothing.

"""

MOVES = """# The lifecycle of a move between log directories

Generated from the table in `state/logdirs/lifecycle.py` by `python -m trueup.streams.docs`; a test compares.

The broker copies the replica. Trueup orders the move and observes its progress with DescribeLogDirs. Each order is
written to the journal before it is sent. A move has `arrived` when the replica is in its target directory and no copy
is in progress. It is `done` when the broker has deleted the source log (file.delete.delay.ms). A move that the broker
forgot is ordered again while it is part of the plan.

"""

DELETIONS = """# The lifecycle of a deletion

Generated from the table in `state/deletion/lifecycle.py` by `python -m trueup.streams.docs`; a test compares.

Each deletion is written to the journal before any action (`trueup get deletions` lists the deletions in progress). It
stays there until storage confirms it: the ledger's metadata are deleted, and every bookie of any of its ensembles
answers that it has no such ledger. Failed attempts are retried with increasing delays of at most one hour.
[deletion.md](deletion.md) describes which ledgers are deleted.

"""

PRIORITIES = """# The lifecycle of a change of a read priority

Generated from the table in `state/read_priority/lifecycle.py` by `python -m trueup.streams.docs`; a test compares.

Trueup compares the policy, writes the change to the journal, sends it, and reads the policy back. A change is `done`
when an observation shows it: a broker answers with success before it applies a policy, and also if it stores no value.
A refused change is planned again after five minutes. [reads.md](reads.md) describes which changes are planned.

"""

RIGHTS = f"""# The least role of every route

Generated from the table in `streams/web/roles.py` by `python -m trueup.streams.docs`; a test compares.

The roles are viewer, reporter, approver and admin; each includes those before it. They apply if `http.tokens_file` is
set; the login exists only then. With PUT `/api/config/<name>`, an approver may set only keys whose last part is
{", ".join(roles.APPROVERS)}; an admin may set every live key. `http.open_metrics` opens `/metrics` to anyone. A session
of the page has the role of its token.
[security.md](security.md) describes tokens and their rotation.
"""

LINKS = """# The states of a link

Generated from the tables in `state/replication/verdicts.py` by `python -m trueup.streams.docs`; a test compares.

The state is computed for each request from the progress of the link's partitions, its heartbeats and the responses of
both clusters. A link that has records to copy and does not copy them is never `up`. If several states apply, the first
in this order is reported, and every reason is listed with the rule that `trueup explain` prints.
"""
WAYS = """
## The commands that lead out of a stop

A partition that a rule stopped continues after a command of an operator. `trueup describe link NAME` and `trueup plan`
show the commands for its state, complete with the names, the recommended one first; none of them is refused in that
state. The table is in `state/replication/recovery.py`. With an opposite link, what that link can restore is restored
first: records that this link copied meanwhile could not be distinguished from those that were lost. A topic that was
deleted and recreated on both sides has nothing to restore: reset both links to `earliest`.
"""
PARTITIONS = """
## The stages of a partition

The stages are computed in the same way; if several apply, the first in this order is reported. Waiting times are
measured with Trueup's clock, starting when a record is first observed at the source, so a backfill of old records is
not late. Other observations can only make the state of the link more severe than its stages do.
"""


def rules() -> str:
    """docs/rules.md."""
    head = "# Rules\n\nGenerated from `state/*/rules.py` by `python -m trueup.streams.docs`; a test compares.\n"
    command = "`trueup explain RULE` prints the same; `trueup get findings --rule RULE` lists the ledgers.\n"
    verdicts = "\n".join(f"- `{verdict.name.lower()}`: {meaning}." for verdict, meaning in MEANINGS.items())
    parts = [head, f"{command}\n{verdicts}\n", *(_rule(rule) for rule in catalog.rules())]
    return "\n".join(parts)


def _rule(rule: Rule) -> str:
    return f"## {rule.id}\n\n`{rule.verdict.name.lower()}`: {rule.title}\n\n{rule.why}\n\n*Remedy.* {rule.remedy}\n"


def repairs() -> str:
    """docs/repairs.md."""
    return f"{STAGES}```mermaid\n{diagram(TRANSITIONS, ENDS)}```\n"


def moves() -> str:
    """docs/moves.md."""
    return f"{MOVES}```mermaid\n{diagram(logdirs.TRANSITIONS, logdirs.ENDS)}```\n"


def deletions() -> str:
    """docs/deletions.md."""
    return (
        f"{DELETIONS}```mermaid\n{diagram(deletion.TRANSITIONS, deletion.ENDS, deletion.DeletionStage.SUSPECTED)}```\n"
    )


def priorities() -> str:
    """docs/read-priorities.md."""
    return f"{PRIORITIES}```mermaid\n{diagram(reads.TRANSITIONS, reads.ENDS)}```\n"


def links() -> str:
    """docs/links.md."""
    states = [f"| `{state}` | {meaning} |" for state, meaning in verdicts.MEANINGS.items()]
    stages = [f"| `{stage}` | {row.holds} | {row.ends} | `{row.state}` |" for stage, row in verdicts.STAGES.items()]
    parts = [LINKS, "| state | applies if |", "|---|---|", *states]
    parts += [PARTITIONS, "| stage | applies if | ends with | state of the link |", "|---|---|---|---|", *stages]
    ways = [f"| {way.when} | `{way.command}` | {way.does} |" for way in recovery.WAYS]
    parts += [WAYS, "| shown if | command | effect |", "|---|---|---|", *ways]
    return "\n".join(parts) + "\n"


def rights() -> str:
    """docs/rights.md."""
    rows = [
        f"| {method} `{rule}` | {'anyone' if role is None else role.text} |"
        for (method, rule), role in sorted(roles.least_roles().items(), key=lambda entry: entry[0][1])
    ]
    return "\n".join([RIGHTS, "| route | least role |", "|---|---|", *rows]) + "\n"


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
        context = click.Context(command)
        for name in command.list_commands(context):
            if inner := command.get_command(context, name):
                yield from _commands(inner, (*path, name))


def _help(path: tuple[str, ...], command: click.Command) -> str:
    names = cli.context_settings["help_option_names"]
    context = click.Context(
        command,
        info_name=" ".join(path),
        terminal_width=HELP_WIDTH,
        max_content_width=HELP_WIDTH,
        help_option_names=names,
    )
    return "\n".join(line.rstrip() for line in command.get_help(context).splitlines())


PAGES: dict[str, Callable[[], str]] = {
    "conf/trueup.yaml": lambda: file.reference(catalog.sections()),
    "docs/commands.md": commands,
    "docs/links.md": links,
    "docs/deletions.md": deletions,
    "docs/metrics.md": lambda: metrics.reference(catalog.all_metrics()),
    "docs/moves.md": moves,
    "docs/read-priorities.md": priorities,
    "docs/repairs.md": repairs,
    "docs/rights.md": rights,
    "docs/rules.md": rules,
}


def write(root: Path) -> list[str]:
    """Write the pages that differ; returns their names."""
    stale = [name for name, page in PAGES.items() if not (root / name).exists() or (root / name).read_text() != page()]
    for name in stale:
        (root / name).write_text(PAGES[name]())
    return stale


if __name__ == "__main__":
    for name in write(Path.cwd()):
        click.echo(name)
