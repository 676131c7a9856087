"""`trueup`: the commands, and what becomes of errors: three lines on stderr and an exit code, never a traceback."""

import sys
from collections.abc import Sequence

import click

from state.errors import BadSettings, TrueupError
from streams.cli import (
    codes,
    config,
    delete,
    demo,
    describe,
    doctor,
    explain,
    get,
    link,
    plan,
    run,
    sandbox,
    status,
    topic,
)


class InOrder(click.Group):
    """Lists its commands in the order in which one needs them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Names of the commands."""
        return list(self.commands)


@click.group(
    cls=InOrder,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=codes.TABLE,
)
@click.version_option(package_name="trueup", prog_name="trueup", message="%(prog)s %(version)s")
def cli() -> None:
    """Keep log-storage clusters as their operators want them.

    Trueup watches a BookKeeper cluster, says which ledgers are not placed as they should be and why, and, once it is
    told to, has BookKeeper repair them. Until then it changes nothing.

    \b
    Try it on servers of its own:   trueup demo rack-drill
    Watch a cluster:                trueup run --set cluster.zookeeper=HOST:2181
    Then, in another terminal:      trueup status
    """


for _command in (
    run.run,
    status.status,
    get.get,
    describe.describe,
    plan.plan,
    plan.approve,
    delete.delete,
    link.link,
    topic.topic,
    explain.explain,
    config.config,
    doctor.doctor,
    sandbox.sandbox,
    demo.demo,
):
    cli.add_command(_command)


def main() -> None:
    """Entry point of `trueup`."""
    sys.exit(invoke(sys.argv[1:]))


def invoke(arguments: Sequence[str]) -> int:
    """Run one command line; its exit code."""
    try:
        code = cli.main(list(arguments), prog_name="trueup", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        click.echo("interrupted", err=True)
        return codes.INTERRUPTED
    except TrueupError as error:
        click.echo(told(error), err=True)
        return codes.code_of(error)
    return code if isinstance(code, int) else codes.OK


def told(error: TrueupError) -> str:
    """An error as it is shown."""
    if isinstance(error, BadSettings):
        lines = "\n".join(f"  {problem}" for problem in error.problems)
        return f"error: the configuration cannot be used\n{lines}"
    return f"error:  expected {error.expected}\n        found    {error.found}\n        to do    {error.todo}"


if __name__ == "__main__":
    main()
