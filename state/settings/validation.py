"""Validation of clusters, links and log directories: each separately, and all together."""

import re
from collections.abc import Iterator, Mapping

from trueup.state.common.options import shown
from trueup.state.common.patterns import problems_of
from trueup.state.common.systems import SYSTEMS
from trueup.state.logdirs.settings import WINDOW, LogDirsSettings
from trueup.state.replication.settings import LinkSettings, LogCluster
from trueup.state.replication.validation import check_link, check_links, check_routes

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
ADDRESS = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}")
LOGDIRS = "kafka"
"""The section of clusters with log directories."""


def check(
    clusters: Mapping[str, Mapping[str, LogCluster | None]],
    links: Mapping[str, LinkSettings | None], logdirs: Mapping[str, LogDirsSettings | None],
) -> list[str]:  # fmt: skip
    """The problems of the declarations; None stands for one that is invalid by itself. ``clusters``: by
    section and name."""
    systems = {name: section for section, table in clusters.items() for name in table}
    problems = [*check_clusters(clusters), *_names("links", links)]
    found = check_links(links, systems)
    for name, chosen in logdirs.items():
        if name not in clusters[LOGDIRS]:
            known = ", ".join(clusters[LOGDIRS]) or "nothing is there"
            found.append(f"logdirs.{name}: expected one of {LOGDIRS}: {known}; found {shown(name)}")
        found += check_entry("logdirs", name, chosen, systems)
    return problems + found or check_routes({name: link for name, link in links.items() if link})


def check_clusters(clusters: Mapping[str, Mapping[str, LogCluster | None]]) -> list[str]:
    """The problems of the clusters of all sections. Names and bits are unique across sections: a link names its
    ends without their system, and a record's path contains only bits."""
    every = [(section, name, cluster) for section, table in clusters.items() for name, cluster in table.items()]
    problems, names = list[str](), dict[str, str]()
    for section, name, _ in every:
        if (other := names.setdefault(name, section)) != section:
            problems.append(f"{section}.{name}: expected another name than that of {other}.{name}; found {shown(name)}")
    usable = [(section, name, cluster) for section, name, cluster in every if cluster]
    problems += [*_bits(usable), *_addresses(usable)]
    for section, table in clusters.items():
        problems += _names(section, table)
    return problems


def _bits(clusters: list[tuple[str, str, LogCluster]]) -> Iterator[str]:
    bits: dict[int, str] = {}
    for section, name, cluster in clusters:
        if (other := bits.setdefault(cluster.bit, (path := f"{section}.{name}"))) != path:
            yield f"{path}.bit: expected another than that of {other}; found {cluster.bit}"


def _addresses(clusters: list[tuple[str, str, LogCluster]]) -> Iterator[str]:
    addresses: dict[str, str] = {}
    for section, name, cluster in clusters:
        path, key = f"{section}.{name}", SYSTEMS[section].address
        for address in cluster.address.split(","):
            if not ADDRESS.fullmatch(address.strip()):
                yield f"{path}.{key}: expected host:port[,host:port...]; found {shown(cluster.address)}"
            elif (other := addresses.setdefault(address.strip(), path)) != path:
                yield f"{path}.{key}: expected another cluster than {other}; found {address.strip()}"


def check_entry(
    section: str, name: str, entry: LinkSettings | LogDirsSettings | None, systems: Mapping[str, str]
) -> list[str]:
    """The problems of one entry of links or logdirs by itself. ``systems``: of every cluster."""
    if isinstance(entry, LogDirsSettings):
        return list(_directories(f"{section}.{name}", entry))
    return check_link(name, entry, systems) if entry else []


def _directories(path: str, chosen: LogDirsSettings) -> Iterator[str]:
    yield from problems_of(f"{path}.exclude", chosen.exclude)
    for place in chosen.exclude_dirs:
        if not place.startswith("/"):
            yield f"{path}.exclude_dirs: expected absolute paths, as the broker reports them; found {shown(place)}"
    for window in chosen.windows:
        found = WINDOW.fullmatch(window)
        if not found or found.groups()[:2] == found.groups()[2:]:
            yield f"{path}.windows: expected two different times, for example 22:00-06:00; found {shown(window)}"


def _names(section: str, table: Mapping[str, object]) -> Iterator[str]:
    for name in table:
        if not NAME.fullmatch(name):
            yield f"{section}.{name}: expected a name of at most 64 letters, digits, - and _; found {shown(name)}"
