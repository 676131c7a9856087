"""Checks of log directories: whether every broker reports them with their sizes, and supports cordons."""

from collections.abc import Iterator

from trueup.connectors.kafka.client.options import endpoint_of, problems
from trueup.connectors.kafka.logdirs.client import DescribedBroker, LogDirsClient
from trueup.state.common.counts import many
from trueup.state.logdirs.model import Broker, skew
from trueup.state.logdirs.settings import SIZE, LogDirsSettings
from trueup.state.settings.kafka import KafkaCluster
from trueup.state.settings.settings import Settings
from trueup.streams.runtime.checks import Check, fail, ok, tried, warn


def all_of(settings: Settings) -> Iterator[Check]:
    """A check for every broker of the clusters of section logdirs."""
    for name in settings.table(LogDirsSettings):
        yield from tried(f"logdirs.{name}", lambda name=name: _brokers(settings, name))  # type: ignore[misc]


def _brokers(settings: Settings, name: str) -> Iterator[Check]:
    declared = settings.table(KafkaCluster)[name]
    endpoint = endpoint_of(name, declared)
    if wrong := problems(endpoint):
        yield fail(f"logdirs.{name}", "; ".join(wrong), "correct these options")
        return
    with LogDirsClient(endpoint) as client:
        for seen in client.look():
            yield _check(f"logdirs.{name}: broker {seen.id}", seen, settings.table(LogDirsSettings)[name].strategy)


def _check(row: str, seen: DescribedBroker, strategy: str) -> Check:
    broker = seen.broker
    if broker is None:
        todo = "grant the user DESCRIBE and DESCRIBE_CONFIGS on the cluster, and check that the broker responds"
        return fail(row, seen.error, todo)
    if offline := [d.path for d in broker.dirs if not d.online]:
        return warn(
            row, f"offline: {', '.join(offline)}", "repair the disk; no replica is moved on this broker until then"
        )
    if not broker.sized:
        return warn(row, "it does not report sizes", "no replica is moved on it; brokers of version 3.3 or later do")
    summary = _found(broker)
    if len(broker.dirs) == 1:
        return ok(row, f"{summary}; with one directory there is nothing to balance")
    if strategy == SIZE and not broker.cordons:
        return warn(
            row,
            f"{summary}; it does not support cordons",
            "new partitions follow its own rule; 4.3 or later supports them",
        )
    return ok(row, summary)


def _found(broker: Broker) -> str:
    directories = many(len(broker.dirs), "directory", "directories")
    volumes = many(len(set(broker.volumes.tolist())), "volume")
    return f"{directories} on {volumes}, skew {skew(broker):.0%}"
