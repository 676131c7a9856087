"""The topics that a link copies, by their names and those of all links.

A name shows that a topic is a copy if a link gives such names: `east.orders` at west, for a link from east with the
name `{source}.{topic}`. A copy is not copied back to a cluster that it came from under another name, which would be a
longer one each time: MirrorMaker decides this in the same way (MirrorSourceConnector.isCycle, with topicSource and
upstreamTopic of DefaultReplicationPolicy). A copy under its own name (IdentityReplicationPolicy) returns to the topic
it came from, where the records decide. If links keep the name in one direction and change it in the other, names do
not show which topic is the copy: such a circle is refused (`circles`).

Heartbeats and dead letters of any link, and copies of them, are no data.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from trueup.state.common.patterns import matches, regex_of
from trueup.state.common.systems import internal
from trueup.state.replication.leases import target_of, topics_of
from trueup.state.replication.settings import LinkSettings

Place = tuple[str, str]
"""Cluster and topic."""
_WILD = re.compile(r"\\\.|(?:\.|\[\^?[^\]]*\])[*+?]?|\(\?:|[()^$?]")


@lru_cache(4_096)
def _form(template: str, source: str) -> re.Pattern[str]:
    """The names that a template gives, with the original name as group ``topic``."""
    regex, seen = "", False
    for part in re.split(r"(\{topic\}|\{source\})", template):
        if part == "{topic}":
            regex, seen = regex + ("(?P=topic)" if seen else "(?P<topic>.+)"), True
        else:
            regex += re.escape(source if part == "{source}" else part)
    return re.compile(regex, re.DOTALL)


def original(template: str, source: str, name: str) -> str | None:
    """The topic of ``source`` whose copy has this name by a template; None if the template gives no such name."""
    match = _form(template, source).fullmatch(name)
    return None if match is None else match.groupdict().get("topic", name)


class LinkNames:
    """The names of all links. ``prefix``: the setting journal.prefix."""

    def __init__(self, links: Mapping[str, LinkSettings], prefix: str = "trueup") -> None:
        self._links, self._prefix = links, prefix
        self._renaming = [link for link in links.values() if not link.into and link.rename != "{topic}"]
        self._beats = {link.heartbeat_topic: f"the heartbeats of links.{name}" for name, link in links.items()}
        self._dead = {name: link for name, link in links.items() if link.failures == "dead-letter"}

    def copied(self, link: LinkSettings, names: Iterable[str]) -> list[str]:
        """Those of ``names``, topics of the link's source, that the link copies, sorted."""
        topics = topics_of(link.topics, link.exclude, names, self._prefix)
        if not self._renaming and not self._dead:
            return [name for name in topics if name not in self._beats]
        return [name for name in topics if not self.no_data(name) and not self.returns(link, name)]

    def no_data(self, name: str) -> str:
        """Why a topic contains no data of applications; empty: it may."""
        if name in self._beats:
            return self._beats[name]
        for dead, link in self._dead.items():
            if original(link.dead_letter_topic, link.source, name) is not None:
                return f"dead letters of links.{dead}"
        if internal(name, self._prefix):
            return "internal"
        for link in self._renaming:
            before = original(link.rename, link.source, name)
            if before is not None and (why := self.no_data(before)):
                return f"a copy of {before}: {why}"
        return ""

    def returns(self, link: LinkSettings, name: str) -> list[Place]:
        """The way on which a topic of the link's source came from the link's target under another name, as names show
        it; empty: it did not."""
        if not self._renaming:
            return []
        ways = {(link.source, name): [(link.source, name)]}
        pending = [(link.source, name)]
        while pending:
            place = pending.pop(0)
            for before in self._before(place):
                if before not in ways:
                    ways[before] = [before, *ways[place]]
                    pending.append(before)
                    if before[0] == link.target and before[1] != name:
                        return ways[before]
        return []

    def _before(self, place: Place) -> Iterator[Place]:
        """The topics of which this one is a copy by its name, one link away."""
        cluster, name = place
        for link in self._links.values():
            if link.target == cluster and not link.into:
                before = original(link.rename, link.source, name)
                if before is not None:
                    yield link.source, before

    def circles(self, names: Mapping[str, Iterable[str]] | None = None) -> dict[str, list[Place]]:
        """Links that copy a topic back to its cluster under another name, again and again, and whose names do not show
        it, each with the first such way. ``names``: the topics of clusters; without them, those in settings, and an
        example of each expression."""
        circles: dict[str, list[Place]] = {}
        if self._renaming:
            for place in dict.fromkeys(self._examples() if names is None else _places(names)):
                for way in self._ways(place):
                    circles.setdefault(way[0], way[1])
        return circles

    def _examples(self) -> Iterator[Place]:
        for link in self._links.values():
            for pattern in link.topics:
                for name in [pattern] if regex_of(pattern) is None else _examples(pattern):
                    yield link.source, name

    def _ways(self, start: Place) -> Iterator[tuple[str, list[Place]]]:
        """The circles that begin at a place, each with the last renaming link on it. The links of a circle also copy
        the topic that comes around."""
        for end in dict.fromkeys(way[-1][1] for _, way in self._returning(start, "")):
            for renamed, way in self._returning(start, end):
                if way[-1][1] == end:
                    yield renamed[-1], way

    def _returning(self, start: Place, again: str) -> Iterator[tuple[Sequence[str], list[Place]]]:
        """The ways from a place to another topic of its cluster, with the renaming links on them; a link renames once.
        ``again``: a topic that the links of a way also copy; empty: none.

        The number of ways between two clusters grows with the factorial of the number of links. What can follow a step
        depends only on the topics that arrive and the links that renamed them, so each such step is taken once.
        """
        pending = [(start, again, tuple[str, ...](), [start])]
        seen = {pending[0][:3]}
        for (cluster, topic), second, renamed, way in pending:
            for name, link in self._links.items():
                renames = link.rename != "{topic}"
                if link.source != cluster or link.into or (renames and name in renamed):
                    continue
                if not self._copies(link, topic) or (second and not self._accepts(link, second)):
                    continue
                after = link.target, target_of(topic, link.rename, "", cluster)
                later = target_of(second, link.rename, "", cluster) if second else ""
                used = (*renamed, name) if renames else renamed
                if (step := (after, later, used)) in seen:
                    continue
                seen.add(step)
                if after[0] != start[0]:
                    pending.append((*step, [*way, after]))
                elif after[1] != start[1]:
                    yield used, [*way, after]

    def _accepts(self, link: LinkSettings, topic: str) -> bool:
        """Whether the patterns of a link match a topic."""
        return bool(topics_of(link.topics, link.exclude, [topic], self._prefix))

    def _copies(self, link: LinkSettings, name: str) -> bool:
        return bool(self.copied(link, [name]))


def _places(names: Mapping[str, Iterable[str]]) -> Iterator[Place]:
    return ((cluster, name) for cluster, some in names.items() for name in some)


def _examples(pattern: str) -> list[str]:
    """A name that an expression matches, if a simple one is found."""
    plain = _WILD.sub(lambda match: {"\\": ".", ".": "x", "[": "x"}.get(match[0][0], ""), pattern[1:-1])
    return next(([name] for name in (plain.split("|")[0], "x") if name and matches([pattern], name)), [])


def shown(way: Iterable[Place]) -> str:
    """A way as text."""
    return " > ".join(f"{topic} at {cluster}" for cluster, topic in way)


def circles_of(links: Mapping[str, LinkSettings], names: Mapping[str, Iterable[str]] | None = None) -> list[str]:
    """The problems of links whose names make a circle. See `LinkNames.circles` for ``names``."""
    expected = "names that show which topic is the copy (rename in both directions, with {source}, or in none)"
    return [
        f"links.{name}.rename: expected {expected}; found a circle of names: {shown(way)} > ..."
        for name, way in LinkNames(links).circles(names).items()
    ]
