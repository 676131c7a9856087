"""trueup explain."""

from difflib import get_close_matches

import click

from trueup.state.common.rules import Rule
from trueup.streams.catalog import rules
from trueup.streams.cli.commands.get import full_rule
from trueup.streams.runtime.format import short
from trueup.streams.terminal import options, out
from trueup.streams.terminal.out import Column, styled
from trueup.streams.web.engine import rule_row


@click.command(short_help="Explain a rule.")
@click.argument("rule", required=False)
@options.listing
def explain(rule: str | None, output: str) -> None:
    """Explain a rule: the meaning of its verdict, its conditions, what Trueup does, and what changes the verdict.

    Without RULE, list all rules. This command does not need a running application.

    \b
    Example:  trueup explain too-few-racks
    """
    if rule is None:
        _list(output)
        return
    match = rules().find(full_rule(rule) or "")
    if match is None:
        raise click.BadParameter(_unknown(rule), param_hint="RULE")
    if out.structured(output, rule_row(match)):
        return
    click.echo(f"{match.id}: {styled(match.verdict.name.lower())}\n{match.title}\n")
    for title, text in (("Why", match.why), ("Remedy", match.remedy)):
        click.echo(click.wrap_text(text, 90, initial_indent=f"{title:8}", subsequent_indent=" " * 8))


def _list(output: str) -> None:
    rows = [rule_row(rule) for rule in rules()]
    columns = [
        Column("RULE", lambda r: r["id"]),
        Column("VERDICT", lambda r: r["verdict"]),
        Column("TITLE", lambda r: r["title"], wraps=True),
    ]
    out.formatted(output, rows, rows, columns, "No rules.")


def _unknown(rule: str) -> str:
    names: list[str] = [name for candidate in rules() for name in _names(candidate)]
    near = get_close_matches(rule, names, 3)
    return f"expected a rule; found {rule!r}; " + (f"near: {', '.join(near)}" if near else "`trueup explain` lists all")


def _names(rule: Rule) -> tuple[str, str]:
    return rule.id, short(rule.id)
