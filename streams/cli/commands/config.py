"""trueup config: live settings of the running application, and checks of a configuration file."""

import os
from pathlib import Path

import click

from trueup.state.common.errors import BadSettings
from trueup.state.common.options import near
from trueup.streams.cli import configuration
from trueup.streams.rows import Row
from trueup.streams.terminal import options, out
from trueup.streams.terminal.client import Api, ApiTarget, segment
from trueup.streams.terminal.out import Column


@click.group(short_help="Show and change settings.")
def config() -> None:
    """Show and change the settings of the running application, or check a configuration file.

    \b
    Example:  trueup config set placement.mode approve
    """


@config.command("get", short_help="Show live settings.")
@click.argument("key", required=False)
@options.listing
@options.api
def get_(api: ApiTarget, output: str, key: str | None) -> None:
    """Show all live settings, or the value of the setting KEY.

    \b
    Example:  trueup config get placement.mode
    """
    settings = Api(api).get("config")
    if key is None:
        _show(settings, output)
        return
    values = {**settings["fixed"], **{name: entry["value"] for name, entry in settings["live"].items()}}
    if key not in values:
        more = near(key, values) or "; `trueup config get -o json` shows all keys"
        raise click.BadParameter(f"expected a key of the settings; found {key!r}{more}", param_hint="KEY")
    output = "json" if output != "yaml" and isinstance(values[key], list | dict) else output
    if not out.structured(output, values[key]):
        click.echo(_plain(values[key]))


def _show(settings: Row, output: str) -> None:
    rows = [{"key": name, **entry} for name, entry in settings["live"].items()]
    columns = [
        Column("KEY", lambda r: r["key"]),
        Column("VALUE", lambda r: _plain(r["value"])),
        Column("DEFAULT", lambda r: _plain(r["default"])),
        Column("MEANING", lambda r: r["doc"], wraps=True),
    ]
    out.formatted(output, settings, rows, columns, "No live settings.")


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@config.command("set", short_help="Change a live setting.", context_settings={"ignore_unknown_options": True})
@click.argument("key")
@click.argument("value", required=False)
@click.option("--default", "reset", is_flag=True, help="Remove the value, so that the configuration file applies.")
@options.output
@options.api
def set_(api: ApiTarget, output: str, key: str, value: str | None, reset: bool) -> None:
    """Change the live setting KEY for all running applications of the cluster, through its config topic. The value
    survives restarts.

    \b
    Examples:  trueup config set placement.max_marks 50
               trueup config set links.east-west.topics orders,/pay\\..*/
               trueup config set placement.max_marks --default

    With --default, KEY may also be a key whose record `trueup status` reports as refused, for example of a link that is
    not declared any more: the record is removed.
    """
    if reset == (value is not None):
        raise click.UsageError("expected VALUE or --default; found " + ("both" if reset else "neither"))
    response = Api(api).put(f"config/{segment(key)}", {"value": value})
    if output == "json":
        out.as_json(response)
    elif reset and response["value"] is None:
        click.echo(f"The record of {key}, which is not a live key, is removed.")
    else:
        click.echo(f"{key} is {_plain(response['value'])}")


@config.command(short_help="Check a configuration.")
@options.configuration
@options.output
def check(path: Path | None, pairs: tuple[str, ...], output: str) -> None:
    """Check the configuration and report all errors. Exits with 2 if there are any; with -o json they are a list
    `problems` in the error.

    This command also checks the files, variables and addresses in the configuration. It opens no connection; see
    `trueup doctor`.

    \b
    Example:  trueup config check -c conf/trueup.yaml
    """
    from trueup.streams.config import check

    problems = check.problems(configuration.settings(path, pairs), os.environ)
    if problems:
        raise BadSettings(problems)
    if output == "json":
        out.as_json({"valid": True})
    else:
        click.echo("The configuration is valid.")


@config.command(short_help="Print a configuration file with every key, its default and meaning.")
def reference() -> None:
    """Print a configuration file with every key, its default and meaning.

    \b
    Example:  trueup config reference > trueup.yaml
    """
    from trueup.streams.catalog import sections
    from trueup.streams.config import file

    click.echo(file.reference(sections()), nl=False)
