"""`trueup`: its commands, and the conversion of errors into lines or one JSON object on stderr and an exit code, never
a traceback."""

import json
import re
import sys
from collections.abc import Sequence
from itertools import pairwise

import click

from trueup.state.common.errors import BadSettings, TrueupError
from trueup.streams.runtime.named import imported
from trueup.streams.terminal import codes, out
from trueup.streams.terminal.groups import Suggesting

COMMANDS = {
    "run": "trueup.streams.cli.commands.run:run",
    "status": "trueup.streams.cli.commands.status:status",
    "get": "trueup.streams.cli.commands.get:get",
    "describe": "trueup.streams.cli.commands.describe:describe",
    "plan": "trueup.streams.cli.commands.plan:plan",
    "approve": "trueup.streams.cli.commands.plan:approve",
    "what-if": "trueup.streams.cli.commands.what_if:what_if",
    "explain": "trueup.streams.cli.commands.explain:explain",
    "read": "trueup.streams.cli.commands.read:read",
    "config": "trueup.streams.cli.commands.config:config",
    "token": "trueup.streams.cli.commands.token:token",
    "journal": "trueup.streams.cli.commands.journal:journal",
    "doctor": "trueup.streams.cli.commands.doctor:doctor",
    "support": "trueup.streams.cli.commands.support:support",
    "sandbox": "trueup.sandbox.commands.sandbox:sandbox",
    "demo": "trueup.sandbox.commands.demo:demo",
    "files": "trueup.streams.cli.commands.installation:files",
    "version": "trueup.streams.cli.commands.installation:version",
}
"""The commands by name, in the order of the help."""


class TrueupGroup(Suggesting):
    """The group `trueup`: its own commands and those of the streams, such as `trueup link`. A module is imported when
    its command is requested, because imports take longer than most commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Names of the commands; those of the streams are listed before explain."""
        own = list(COMMANDS)
        at = own.index("explain")
        return [*own[:at], *_brought(), *own[at:]]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of this name."""
        if cmd_name not in COMMANDS:
            return _brought().get(cmd_name)
        command: click.Command = imported(COMMANDS[cmd_name])
        return command


def _brought() -> dict[str, click.Command]:
    """The commands of the streams by name."""
    from trueup.streams.catalog import STREAMS

    return {command.name or "": command for stream in STREAMS for command in stream.commands().groups}


@click.group(
    cls=TrueupGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=codes.TABLE,
)
@click.version_option(package_name="trueup", prog_name="trueup", message="%(prog)s %(version)s")
def cli() -> None:
    """Reconcile log-storage clusters with their declared state.

    Trueup observes BookKeeper, Pulsar and Kafka clusters, reports each difference from the declared state with its
    evidence, and repairs it when the mode allows it. It starts in mode observe and changes nothing.

    \b
    Run a demo:                     trueup demo rack-drill
    Watch a cluster:                trueup run --set cluster.zookeeper=HOST:2181
    Then, in another terminal:      trueup status
    """


def main() -> None:
    """Entry point of `trueup`."""
    sys.exit(invoke(sys.argv[1:]))


def invoke(arguments: Sequence[str]) -> int:
    """Run one command line; returns its exit code."""
    try:
        with out.reader(for_programs(arguments)):
            code = cli.main(list(arguments), prog_name="trueup", standalone_mode=False)
    except click.ClickException as error:
        if for_programs(arguments):
            click.echo(_usage_as_json(error), err=True)
        else:
            error.show()
        return error.exit_code
    except click.Abort:
        fields = {"expected": "the end of the command", "found": "an interrupt", "todo": "run it again"}
        text = json.dumps({"error": {**fields, "code": codes.INTERRUPTED}})
        click.echo(text if for_programs(arguments) else "interrupted", err=True)
        return codes.INTERRUPTED
    except TrueupError as error:
        click.echo(as_json(error) if for_programs(arguments) else error_text(error), err=True)
        return codes.code_of(error)
    return code if isinstance(code, int) else codes.OK


def for_programs(arguments: Sequence[str]) -> bool:
    """Whether JSON is requested, even if the command line is invalid."""
    words = list(arguments)
    joined = {"-ojson", "-o=json", "--output=json"} & set(words)
    return bool(joined) or any(pair in (("-o", "json"), ("--output", "json")) for pair in pairwise(words))


def _usage_as_json(error: click.ClickException) -> str:
    """An invalid command line as JSON, with the fields of `as_json`."""
    message = error.format_message()
    parts = re.fullmatch(r"(?:Invalid value for (.+?): )?(.*?)expected (.*?); found (.*)", message, re.DOTALL)
    about = " ".join(filter(None, [parts[1], parts[2].rstrip(": ")])) if parts else ""
    expected, found = (
        (f"{about}: {parts[3]}" if about else parts[3], parts[4]) if parts else ("a valid command", message)
    )
    context = error.ctx if isinstance(error, click.UsageError) else None
    todo = f"see `{context.command_path if context else 'trueup'} --help`"
    return json.dumps({"error": {"expected": expected, "found": found, "todo": todo, "code": error.exit_code}})


def as_json(error: TrueupError) -> str:
    """Print an error as JSON on stderr: ``{"error": {expected, found, todo, code}}``, with ``problems`` for invalid
    settings."""
    fields = {"expected": error.expected, "found": error.found, "todo": error.todo, "code": codes.code_of(error)}
    problems = {"problems": list(error.problems)} if isinstance(error, BadSettings) else {}
    return json.dumps({"error": {**fields, **problems}})


def error_text(error: TrueupError) -> str:
    """An error as text."""
    if isinstance(error, BadSettings):
        lines = "\n".join(f"  {problem}" for problem in error.problems)
        return f"error: invalid configuration\n{lines}"
    return f"error:  expected {error.expected}\n        found    {error.found}\n        to do    {error.todo}"


if __name__ == "__main__":
    main()
