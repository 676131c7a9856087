"""trueup topic create."""

import click

from trueup.streams.cli import options, out
from trueup.streams.cli.out import Column
from trueup.streams.web.client import Api, segment

COLUMNS = (
    Column("PARTITION", lambda r: r["partition"], number=True),
    Column("BROKER", lambda r: r["broker"], number=True),
    Column("DIRECTORY", lambda r: r["path"]),
)


@click.group(short_help="Make a topic in chosen log directories.")
def topic() -> None:
    """Make topics whose partitions go to the log directories that the strategy of their cluster chooses.

    \b
    Example:  trueup topic create east orders --partitions 12 --replicas 3
    """


@topic.command(short_help="Choose brokers and directories first, then make it.")
@click.argument("kafka", metavar="CLUSTER")
@click.argument("name")
@click.option("--partitions", type=click.IntRange(1), default=1, show_default=True, help="How many.")
@click.option("--replicas", type=click.IntRange(1), default=1, show_default=True, help="Of each partition.")
@click.option("--config", "pairs", metavar="KEY=VALUE", multiple=True, help="A setting of the topic. Repeatable.")
@options.output
@options.api
def create(
    api: str, output: str, kafka: str, name: str, partitions: int, replicas: int, pairs: tuple[str, ...]
) -> None:
    """Make topic NAME on a CLUSTER of logdirs:. Brokers with few replicas come first, racks take turns, and each broker
    is told the directory before the topic is there, which every version can. Needs mode approve or enforce.

    \b
    Example:  trueup topic create east orders --partitions 12 --config retention.ms=86400000
    """
    split = [pair.partition("=") for pair in pairs]
    if bad := [key for key, equals, _ in split if not key or not equals]:
        raise click.UsageError(f"--config: expected KEY=VALUE; found {bad[0]!r}")
    configs = {key: value for key, _, value in split}
    body = {"name": name, "partitions": partitions, "replicas": replicas, "configs": configs}
    rows = Api(api).post(f"topics/{segment(kafka)}", body)
    if output == "json":
        out.as_json(rows)
    else:
        out.table(rows, COLUMNS, "No partition.")
