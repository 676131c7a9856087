"""Pages that are printed from the code they describe: `python -m streams.docs` writes them all."""

from collections.abc import Callable, Iterator
from pathlib import Path

import click

from state.repairs import diagram
from state.rules import RULES, Rule, Verdict
from streams import config, metrics
from streams.cli.main import cli

HELP_WIDTH = 100
MEANINGS = {
    Verdict.TRUE: "as it should be",
    Verdict.DRIFTED: "not as it should be, and BookKeeper can mend it; the only verdict that is ever acted upon",
    Verdict.BLOCKED: "not as it should be, and no remedy exists now; the reason says what would change that",
    Verdict.UNKNOWN: "nothing can be said; nothing is ever changed on it",
}
STAGES = """# The life of a repair

Generated from the table in `state/repairs.py` by `python -m streams.docs`; a test compares.

BookKeeper repairs; Trueup writes the mark that asks for it and watches. A repair is `safe` when the ledger's own
metadata and the liveness of its bookies say so: a mark that went away proves nothing. An event that the table does not
know is refused and changes nothing.

"""


def rules() -> str:
    """docs/rules.md."""
    head = "# Rules\n\nGenerated from `state/rules.py` by `python -m streams.docs`; a test compares.\n"
    command = "`trueup explain RULE` prints the same; `trueup get findings --rule RULE` lists the ledgers.\n"
    verdicts = "\n".join(f"- `{verdict.name.lower()}`: {meaning}." for verdict, meaning in MEANINGS.items())
    parts = [head, f"{command}\n{verdicts}\n", *(_rule(rule) for rule in RULES)]
    return "\n".join(parts)


def _rule(rule: Rule) -> str:
    return f"## {rule.id}\n\n`{rule.verdict.name.lower()}`: {rule.title}\n\n{rule.why}\n\n*Remedy.* {rule.remedy}\n"


def repairs() -> str:
    """docs/repairs.md."""
    return f"{STAGES}```mermaid\n{diagram()}```\n"


def commands() -> str:
    """docs/commands.md."""
    parts = ["# Commands\n\nGenerated from `trueup --help` and its kin by `python -m streams.docs`; a test compares.\n"]
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
    "conf/trueup.yaml": config.reference,
    "docs/commands.md": commands,
    "docs/metrics.md": metrics.reference,
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
