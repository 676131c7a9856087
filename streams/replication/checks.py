"""Checks of links: whether both clusters respond and differ, whether a topic matches, and whether records arrive by
one link only."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from trueup.state.common.counts import many
from trueup.state.replication.clusters import clusters_of
from trueup.state.replication.leases import target_of
from trueup.state.replication.names import LinkNames, circles_of
from trueup.state.replication.settings import LinkSettings
from trueup.state.replication.topology import check_topology, routes_of
from trueup.state.settings.settings import Settings
from trueup.streams.replication.clusters import admin_of, endpoint_of
from trueup.streams.runtime.checks import Check, fail, ok, tried, warn


class AnsweringCluster(NamedTuple):
    """A cluster that responded."""

    id: str
    names: list[str]


def all_of(settings: Settings) -> Iterator[Check]:
    """A check for every cluster of a link, and for every link whose clusters both responded."""
    seen: dict[str, AnsweringCluster] = {}
    links, clusters = settings.table(LinkSettings), clusters_of(settings.sections)
    for name in dict.fromkeys(end for link in links.values() for end in (link.source, link.target)):
        yield from tried(f"{clusters[name][0]}.{name}", lambda name=name: _cluster(settings, name, seen))  # type: ignore[misc]
    for name, link in links.items():
        if {link.source, link.target} <= seen.keys():
            yield _link(name, link, seen, LinkNames(links, settings.journal.prefix))
    names = {cluster: answering.names for cluster, answering in seen.items()}
    for problem in (*check_topology(routes_of(links, names)), *circles_of(links, names)):
        yield fail("links", problem, "see `trueup explain refused`")


def _cluster(settings: Settings, name: str, seen: dict[str, AnsweringCluster]) -> Check:
    endpoint = endpoint_of(settings.sections, name)
    row, cluster = f"{endpoint.system}.{name}", admin_of(endpoint)
    if wrong := cluster.problems():
        return fail(row, "; ".join(wrong), "correct these options")
    try:
        seen[name] = AnsweringCluster(cluster.cluster_id(), cluster.names())
        notes = cluster.notes(_heartbeat_topic(settings, name))
    finally:
        cluster.close()
    return ok(row, ", ".join([f"cluster {seen[name].id}, {many(len(seen[name].names), 'topic')}", *notes]))


def _heartbeat_topic(settings: Settings, cluster: str) -> str:
    """The heartbeats' topic of the first link with this cluster."""
    links = settings.table(LinkSettings).values()
    return next(link.heartbeat_topic for link in links if cluster in (link.source, link.target))


def _link(name: str, link: LinkSettings, seen: Mapping[str, AnsweringCluster], every: LinkNames) -> Check:
    row, source, target = f"links.{name}", seen[link.source], seen[link.target]
    if source.id == target.id:
        return fail(row, f"{link.source} and {link.target} are one cluster, {source.id}", "correct their addresses")
    topics = every.copied(link, source.names)
    called = {target_of(topic, link.rename, link.into, link.source) for topic in topics}
    missing = len(called - set(target.names))
    summary = f"{many(len(topics), 'topic')} to copy, {missing} to create at the target, mode {link.mode}"
    if not topics:
        return warn(
            row, summary, f"check that links.{name}.topics matches topics that the user of {link.source} may read"
        )
    if missing and "partitions" not in link.align:
        return warn(row, summary, f"create them, or add partitions to links.{name}.align")
    return ok(row, summary)
