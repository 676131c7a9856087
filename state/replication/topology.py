"""The routes of a topic's records over all links: no record may reach a place on two routes.

A link copies the records produced at its source, and with ``forward`` also those that other links copied there, except
to clusters that a record passed. Thus a ring, a chain or a tree delivers every record everywhere once, and so does a
full mesh of links without ``forward``; a mesh with ``forward`` would deliver records twice.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from trueup.state.common.patterns import regex_of
from trueup.state.replication.leases import target_of
from trueup.state.replication.names import LinkNames
from trueup.state.replication.settings import LinkSettings

Place = tuple[str, str]
"""Cluster and topic."""


class LinkRoute(NamedTuple):
    """A link's topics: name at the source to name at the target."""

    link: str
    source: str
    target: str
    forward: bool
    topics: Mapping[str, str]


class DuplicateRoutes(NamedTuple):
    """Records of one origin that reach a place on two routes. Each route is given as its links."""

    origin: Place
    """The place where the records are produced."""
    at: Place
    """The place that the records reach twice."""
    routes: tuple[tuple[str, ...], tuple[str, ...]]


def routes_of(links: Mapping[str, LinkSettings], names: Mapping[str, Collection[str]] | None = None) -> list[LinkRoute]:
    """The routes of links over the existing topics, by cluster. Without these, the names in the links' settings are
    used, and each expression as if it were a topic: topics common to two expressions are not detected."""
    if names is None:
        names = _names(links)
    every = LinkNames(links)
    return [
        LinkRoute(name, link.source, link.target, link.forward, _topics(every, link, names.get(link.source, ())))
        for name, link in links.items()
    ]


def _topics(every: LinkNames, link: LinkSettings, names: Iterable[str]) -> dict[str, str]:
    topics = every.copied(link, names)
    topics += [name for name in names if name in link.topics and regex_of(name) is not None]
    return {name: target_of(name, link.rename, link.into, link.source) for name in topics}


def _names(links: Mapping[str, LinkSettings]) -> dict[str, set[str]]:
    """Names in the settings of links, and the names that they can have at other clusters."""
    names, every = dict[str, set[str]](), LinkNames(links)
    for link in links.values():
        names.setdefault(link.source, set()).update(link.topics)
    for _ in links:
        for link in links.values():
            names.setdefault(link.target, set()).update(_topics(every, link, names[link.source]).values())
    return names


def doubled(routes: Iterable[LinkRoute]) -> Iterator[DuplicateRoutes]:
    """Every place that records of one origin reach on two routes, with the first two routes found."""
    leaving: dict[Place, list[tuple[LinkRoute, str]]] = {}
    for route in routes:
        for topic, called in route.topics.items():
            leaving.setdefault((route.source, topic), []).append((route, called))
    for origin in leaving:
        yield from _doubled_from(origin, leaving)


def _doubled_from(origin: Place, leaving: Mapping[Place, list[tuple[LinkRoute, str]]]) -> Iterator[DuplicateRoutes]:
    came: dict[Place, tuple[str, ...]] = {}
    twice: set[Place] = set()
    pending: list[tuple[Place, frozenset[str], tuple[str, ...]]] = [(origin, frozenset({origin[0]}), ())]
    while pending:
        place, passed, links = pending.pop(0)
        for route, called in leaving.get(place, ()):
            if route.target in passed or (links and not route.forward):
                continue
            there, extended = (route.target, called), (*links, route.link)
            if there not in came:
                came[there] = extended
                pending.append((there, passed | {route.target}, extended))
            elif there not in twice:
                twice.add(there)
                yield DuplicateRoutes(origin, there, (came[there], extended))


def second_routes(routes: Iterable[LinkRoute]) -> dict[str, str]:
    """Links that deliver records of another route again: the first case of each, as expectation and finding."""
    problems: dict[str, str] = {}
    for duplicate in doubled(routes):
        (route, other), (cluster, topic) = duplicate.routes, duplicate.at
        text = f"one route from {duplicate.origin[0]} to {topic} at {cluster}, or records arrive twice"
        problems.setdefault(other[-1], f"{text}; found {' > '.join(route)} and {' > '.join(other)}")
    return problems


def check_topology(routes: Collection[LinkRoute]) -> list[str]:
    """The problems of all links together."""
    return [f"links.{link}.forward: expected {text}" for link, text in second_routes(routes).items()]
