"""The subcommands of `trueup get` and `trueup describe` that streams of the catalog define."""

import re
from collections.abc import Iterator, Sequence

import click

from trueup.streams.catalog import STREAMS
from trueup.streams.rows import Row
from trueup.streams.runtime.descriptor import Commands, Noun, ResourceKind
from trueup.streams.terminal import options, out
from trueup.streams.terminal.client import Api, ApiTarget, segment
from trueup.streams.terminal.groups import Suggesting
from trueup.streams.terminal.out import Column
from trueup.streams.web.engine import SELECTORS

_VARIABLE = re.compile(r"<(?:\w+:)?(\w+)>")


class InOrder(Suggesting):
    """Lists commands in the order of their definition."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Names of the commands."""
        return list(self.commands)


class Resources(InOrder):
    """Its own commands and those of the streams. The catalog is read for each request."""

    def of(self, commands: Commands) -> Sequence[click.Command]:  # noqa: ARG002 - see the groups below
        """The commands of a stream for this group."""
        return ()

    def generic(self) -> Iterator[click.Command]:
        """A command for each noun without a command of its own."""
        yield from ()

    def _all(self) -> dict[str, click.Command]:
        brought = [command for stream in STREAMS for command in self.of(stream.commands())]
        return {command.name or "": command for command in (*self.commands.values(), *brought, *self.generic())}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Names of the commands."""
        return list(self._all())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of this name."""
        return self._all().get(cmd_name)


class Lists(Resources):
    """The group `trueup get`."""

    def of(self, commands: Commands) -> Sequence[click.Command]:
        """The lists of a stream."""
        return commands.get

    def generic(self) -> Iterator[click.Command]:
        """A table of all fields for each noun that has a title and no command of its own."""
        return (_list(noun) for stream in STREAMS for noun in stream.lists if noun.about)


class Details(Resources):
    """The group `trueup describe`."""

    def of(self, commands: Commands) -> Sequence[click.Command]:
        """The descriptions of a stream."""
        return commands.describe

    def generic(self) -> Iterator[click.Command]:
        """All fields, one per line, of each noun that has a title and no command of its own."""
        return (_detail(thing) for stream in STREAMS for thing in stream.things if thing.about)


def _list(noun: Noun) -> click.Command:
    def command(api: ApiTarget, output: str, **query: str | int | None) -> int:
        response = Api(api).rows(noun.name, **query)
        columns = [_column(name, value) for name, value in (response.rows[0] if response.rows else {}).items()]
        return out.listing(output, response, columns, f"No {noun.name}.")

    command.__doc__ = f"{noun.about}\n\n\b\nExample:  trueup get {noun.name}\n"
    wrapped = options.listing(options.api(command))
    for name, values in noun.choices.items():
        wrapped = click.option(f"--{name}", type=click.Choice(values), help=f"Show only rows with this {name}.")(
            wrapped
        )
    for name in noun.selectors:
        wrapped = click.option(f"--{name}", metavar=SELECTORS[name], help=f"Show only rows with this {name}.")(wrapped)
    if noun.limit:
        wrapped = options.limit(noun.limit)(wrapped)
    return click.command(noun.name, short_help=noun.about)(wrapped)


def _column(name: str, value: object) -> Column:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return Column(_title(name), lambda row: row[name], number=number)


def _title(name: str) -> str:
    return name.upper().replace("_", "-")


def _detail(thing: ResourceKind) -> click.Command:
    names = _VARIABLE.findall(thing.path)

    def command(api: ApiTarget, output: str, **values: str) -> None:
        details: Row = Api(api).get(_VARIABLE.sub(lambda match: segment(values[match[1]]), thing.path))
        if output == "json":
            out.as_json(details)
        else:
            width = max(map(len, details), default=0) + 2
            for name, value in details.items():
                click.echo(f"{name.replace('_', ' ').capitalize():{width}}{value}")

    command.__doc__ = f"{thing.about}\n\n\b\nExample:  trueup describe {thing.name} {' '.join(map(str.upper, names))}\n"
    wrapped = options.output(options.api(command))
    for name in reversed(names):
        wrapped = click.argument(name)(wrapped)
    return click.command(thing.name, short_help=thing.about)(wrapped)
