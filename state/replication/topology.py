"""Where the records of a topic travel over all links together: never by two ways to one place.

A link passes on what was born at its source, and with ``forward`` what others brought there, except to clusters that
a record passed. So a ring, a chain or a tree brings every record everywhere once, and so does a full mesh of links
that do not forward; a mesh that forwards brings it by two ways and doubles it.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from trueup.state.common.patterns import regex_of
from trueup.state.replication.leases import target_of, topics_of
from trueup.state.replication.settings import Link

Place = tuple[str, str]
"""Cluster and topic."""


class Route(NamedTuple):
    """A link's topics: name at the source to name at the target."""

    link: str
    source: str
    target: str
    forward: bool
    topics: Mapping[str, str]
    copy: str = "auto"


class Doubled(NamedTuple):
    """Records born at ``origin`` reach ``at`` by two ways, each told by its links."""

    origin: Place
    at: Place
    ways: tuple[tuple[str, ...], tuple[str, ...]]


def routes_of(links: Mapping[str, Link], names: Mapping[str, Collection[str]] | None = None) -> list[Route]:
    """The routes of links over the topics that exist, by cluster. Without them the names that links tell are taken,
    and each expression as if it were a topic: what two different expressions share is not seen."""
    if names is None:
        names = _told(links)
    return [
        Route(name, link.source, link.target, link.forward, _topics(link, names.get(link.source, ())), link.copy)
        for name, link in links.items()
    ]


def _topics(link: Link, names: Iterable[str]) -> dict[str, str]:
    chosen = topics_of(link.topics, link.exclude, names)
    chosen += [name for name in names if name in link.topics and regex_of(name) is not None]
    return {name: target_of(name, link.rename, link.into, link.source) for name in chosen}


def _told(links: Mapping[str, Link]) -> dict[str, set[str]]:
    """Names that links speak of, wherever a record under that name may come to be."""
    names: dict[str, set[str]] = {}
    for link in links.values():
        names.setdefault(link.source, set()).update(link.topics)
    for _ in links:
        for link in links.values():
            names.setdefault(link.target, set()).update(_topics(link, names[link.source]).values())
    return names


def doubled(routes: Iterable[Route]) -> Iterator[Doubled]:
    """Every place that records of one origin reach by two ways, with the first two ways found."""
    leaving: dict[Place, list[tuple[Route, str]]] = {}
    for route in routes:
        for topic, called in route.topics.items():
            leaving.setdefault((route.source, topic), []).append((route, called))
    for origin in leaving:
        yield from _doubled_from(origin, leaving)


def _doubled_from(origin: Place, leaving: Mapping[Place, list[tuple[Route, str]]]) -> Iterator[Doubled]:
    came: dict[Place, tuple[str, ...]] = {}
    twice: set[Place] = set()
    walks: list[tuple[Place, frozenset[str], tuple[str, ...]]] = [(origin, frozenset({origin[0]}), ())]
    while walks:
        place, passed, way = walks.pop(0)
        for route, called in leaving.get(place, ()):
            if route.target in passed or (way and not route.forward):
                continue
            there, longer = (route.target, called), (*way, route.link)
            if there not in came:
                came[there] = longer
                walks.append((there, passed | {route.target}, longer))
            elif there not in twice:
                twice.add(there)
                yield Doubled(origin, there, (came[there], longer))


def meeting(routes: Collection[Route]) -> list[frozenset[str]]:
    """Links that must use one path, as the records of one may come to the other: those that touch the same topic of
    the same cluster, and so on. Only groups of more than one."""
    group = {route.link: {route.link} for route in routes}
    holder: dict[Place, str] = {}
    for route in routes:
        places = {(route.source, topic) for topic in route.topics} | {(route.target, t) for t in route.topics.values()}
        for place in places:
            joined = group[route.link] | group[holder.setdefault(place, route.link)]
            group |= dict.fromkeys(joined, joined)
    return [frozenset(links) for links in {id(links): links for links in group.values()}.values() if len(links) > 1]


def second_ways(routes: Iterable[Route]) -> dict[str, str]:
    """Links that bring what comes by another way too: the first case of each, as what was expected and found."""
    problems: dict[str, str] = {}
    for found in doubled(routes):
        (one, other), (cluster, topic) = found.ways, found.at
        text = f"one way from {found.origin[0]} to {topic} at {cluster}, or records arrive twice"
        problems.setdefault(other[-1], f"{text}; found {' > '.join(one)} and {' > '.join(other)}")
    return problems


def check_topology(routes: Collection[Route]) -> list[str]:
    """What is wrong with links taken together."""
    problems = [f"links.{link}.forward: expected {text}" for link, text in second_ways(routes).items()]
    copies = {route.link: route.copy for route in routes}
    for links in meeting(routes):
        paths = {copies[link]: link for link in sorted(links)}
        if {"batches", "records"} <= set(paths):
            problems.append(
                f"links.{paths['records']}.copy: expected the path of links.{paths['batches']}, as they meet at a "
                "topic, and records cannot see where batches have been; found 'records'"
            )
    return problems
