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


@click.group(short_help="Create a topic in selected log directories.")
def topic() -> None:
    """Create topics in log directories selected by the strategy of their cluster.

    \b
    Example:  trueup topic create east orders --partitions 12 --replicas 3
    """


@topic.command(short_help="Create a topic.")
@click.argument("kafka", metavar="CLUSTER")
@click.argument("name")
@click.option("--partitions", type=click.IntRange(1), default=1, show_default=True, help="Number of partitions.")
@click.option("--replicas", type=click.IntRange(1), default=1, show_default=True, help="Replication factor.")
@click.option("--config", "pairs", metavar="KEY=VALUE", multiple=True, help="Topic setting. Repeatable.")
@options.output
@options.api
def create(
    api: str, output: str, kafka: str, name: str, partitions: int, replicas: int, pairs: tuple[str, ...]
) -> None:
    """Create topic NAME on a CLUSTER of section logdirs. Trueup selects the brokers with the fewest replicas,
    alternating between racks, and assigns a directory on each broker before it creates the topic. This works on every
    broker version. Requires mode approve or enforce.

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
