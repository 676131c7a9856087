"""Validation of links: each separately, and all together.

``systems``: the system of every declared cluster by its name, a key of `state.common.systems.SYSTEMS`. An undeclared
cluster is a problem itself; until it is solved, topics at that end are validated as those of the first system.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from trueup.state.common.options import shown
from trueup.state.common.patterns import problems_of, regex_of
from trueup.state.common.systems import SYSTEMS, System, internal
from trueup.state.replication.clusters import bits_of, check_clusters, check_names, systems_of, tables_of
from trueup.state.replication.leases import target_of, writer_id_of
from trueup.state.replication.names import LinkNames, circles_of
from trueup.state.replication.names import shown as names_shown
from trueup.state.replication.settings import DEAD_LETTERS, LinkSettings, start_of
from trueup.state.replication.topology import check_topology, routes_of
from trueup.state.settings.section import Draft, Section

ENTRY_POINT = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def check_links(links: Mapping[str, LinkSettings | None], systems: Mapping[str, str]) -> list[str]:
    """The problems of the links; None stands for one that is invalid by itself."""
    declared = {name: link for name, link in links.items() if link}
    problems = [
        problem
        for name, link in declared.items()
        for problem in (*_ends(f"links.{name}", link, systems), *check_link(name, link, systems))
    ]
    return problems + (list(_named(declared)) if not problems else [])


def check(draft: Draft) -> list[str]:
    """The problems of the links and of the clusters that they can name; of their routes if there are no others."""
    clusters, links = tables_of(draft.sections), draft.table(LinkSettings)
    problems = [*check_clusters(clusters), *check_names("links", links)]
    problems += check_links(links, systems_of(draft.sections))
    valid = {name: link for name, link in links.items() if link}
    problems += _writer_ids(valid, bits_of(draft.sections))
    return problems or circles_of(valid) or list(check_topology(routes_of(valid)))


def _named(links: Mapping[str, LinkSettings]) -> Iterator[str]:
    """Topics that a link names and would never copy, because of the names of all links."""
    every = LinkNames(links)
    for name, link in links.items():
        for topic in link.topics:
            if regex_of(topic) is not None:
                continue
            way = every.returns(link, topic)
            why = every.no_data(topic) or (
                f"a copy that would return to {link.target}: {names_shown(way)}" if way else ""
            )
            if why:
                yield f"links.{name}.topics: expected topics that applications write; found {shown(topic)}, {why}"


def check_link(name: str, link: LinkSettings, systems: Mapping[str, str]) -> list[str]:
    """The problems of one link by itself."""
    path, source, target = f"links.{name}", _system(link.source, systems), _system(link.target, systems)
    checks = (_topics(path, link, source), _target(path, link, source, target), _times(path, link))
    return [problem for some in (*checks, _failures(path, link)) for problem in some]


def _system(cluster: str, systems: Mapping[str, str]) -> System:
    return SYSTEMS[systems.get(cluster, next(iter(SYSTEMS)))]


def _declared(systems: Mapping[str, str]) -> str:
    """The declared clusters by their sections."""
    sections = {section: [name for name, system in systems.items() if system == section] for section in SYSTEMS}
    parts = [f"{section}: {', '.join(names)}" for section, names in sections.items() if names]
    return "; ".join(parts) or f"the clusters in {', '.join(SYSTEMS)}; nothing is there"


def _ends(path: str, link: LinkSettings, systems: Mapping[str, str]) -> Iterator[str]:
    for end, name in (("source", link.source), ("target", link.target)):
        if name not in systems:
            yield f"{path}.{end}: expected one of {_declared(systems)}; found {shown(name)}"
    if link.source == link.target:
        yield f"{path}.target: expected another cluster than {path}.source; found {shown(link.target)}"


def _topics(path: str, link: LinkSettings, source: System) -> Iterator[str]:
    for leaf in ("topics", "exclude", "paused_topics", "groups", "config_exclude"):
        yield from problems_of(f"{path}.{leaf}", getattr(link, leaf))
    for name in link.topics:
        if regex_of(name) is None and not source.allows(name):
            expected = f"names that {source.title} allows, or /regular expressions/"
            yield f"{path}.topics: expected {expected}; found {shown(name)}"
        elif name in (link.heartbeat_topic, link.into) or internal(name):
            yield f"{path}.topics: expected topics that applications write; found {shown(name)}, which is internal"


def _target(path: str, link: LinkSettings, source: System, target: System) -> Iterator[str]:
    allowed = f"a name that {target.title} allows"
    if link.into:
        if not target.allows(link.into) or internal(link.into):
            yield f"{path}.into: expected {allowed}, not an internal one; found {shown(link.into)}"
        if link.rename != "{topic}":
            yield f"{path}.rename: expected nothing because {path}.into is set; found {shown(link.rename)}"
    elif "{topic}" not in link.rename or not _nameable(link.rename, link.source, target):
        expected = f"{allowed} with {{topic}} in it (for one topic use into)"
        yield f"{path}.rename: expected {expected}; found {shown(link.rename)}"
    if not _nameable(link.dead_letter_topic, link.source, target) and _has_dead_letters(link):
        yield f"{path}.dead_letter_topic: expected {allowed}; found {shown(link.dead_letter_topic)}"
    elif target_of("t", link.dead_letter_topic, "", link.source) == target_of("t", link.rename, link.into, link.source):
        found = shown(link.dead_letter_topic)
        yield f"{path}.dead_letter_topic: expected another topic than what is copied; found {found}"
    for system in dict.fromkeys((source, target)):
        if not system.allows(link.heartbeat_topic):
            expected, found = f"a name that {system.title} allows", shown(link.heartbeat_topic)
            yield f"{path}.heartbeat_topic: expected {expected}; found {found}"


def _has_dead_letters(link: LinkSettings) -> bool:
    """Whether dead letters are written, or their topic was named."""
    return link.failures == "dead-letter" or link.dead_letter_topic != DEAD_LETTERS


def _nameable(template: str, source: str, target: System) -> bool:
    filled = target_of("t", template, "", source)
    return target.allows(filled) and not internal(filled)


def _times(path: str, link: LinkSettings) -> Iterator[str]:
    if start_of(link.start) is None:
        expected = "earliest, latest, time:2026-01-31T00:00:00Z or group:NAME"
        yield f"{path}.start: expected {expected}; found {shown(link.start)}"
    if link.slow_s <= link.heartbeat_s:
        yield f"{path}.slow_s: expected more than {path}.heartbeat_s, {link.heartbeat_s}; found {link.slow_s}"
    if link.stalled_s <= link.slow_s:
        yield f"{path}.stalled_s: expected more than {path}.slow_s, {link.slow_s}; found {link.stalled_s}"


def _failures(path: str, link: LinkSettings) -> Iterator[str]:
    for leaf, code in (("hook", link.hook), ("transform", link.transform)):
        if code and not ENTRY_POINT.fullmatch(code):
            yield f"{path}.{leaf}: expected module:function; found {shown(code)}"
    if link.failures == "hook" and not link.hook:
        yield f"{path}.hook: expected module:function because {path}.failures is hook; found nothing"
    if link.hook and link.failures != "hook":
        yield f"{path}.failures: expected hook because {path}.hook is set; found {shown(link.failures)}"
    if link.transform and link.copy == "batches":
        yield f"{path}.copy: expected records or auto because {path}.transform processes every record; found 'batches'"
    if link.failures != "stop" and link.copy == "batches":
        yield f"{path}.copy: expected records or auto because {path}.failures handles single records; found 'batches'"


def _writer_ids(links: Mapping[str, LinkSettings], bits: Mapping[str, int]) -> Iterator[str]:
    """Links that write to one cluster as the same producer would take each other's records for their own."""
    seen: dict[tuple[str, int], str] = {}
    for name, link in links.items():
        if link.source not in bits:
            continue
        number = writer_id_of(name, bits[link.source], link.flow)
        other = seen.setdefault((link.target, number), name)
        if other != name:
            yield f"links.{name}.flow: expected another than that of links.{other} to the same target; found {number}"


def check_entry(name: str, link: LinkSettings, draft: Draft) -> Iterable[str]:
    """The problems of one link by itself."""
    return check_link(name, link, systems_of(draft.sections))


LINKS = Section(
    "links",
    LinkSettings,
    entries=("east-west",),
    complete=True,
    check=check,
    check_entry=check_entry,
    examples={"source": "east", "target": "west", "topics": r"[orders, '/pay\..*/']"},
)
