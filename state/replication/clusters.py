"""The clusters that links can name: all systems share one space of names and of bits."""

import re
from collections.abc import Iterator, Mapping

from trueup.state.common.options import ADDRESS, shown
from trueup.state.common.systems import SYSTEMS
from trueup.state.replication.settings import LogCluster
from trueup.state.settings.section import Sections

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def clusters_of(sections: Sections) -> dict[str, tuple[str, LogCluster]]:
    """Every cluster that a link can name: its system (the section's name) and its settings."""
    return {
        name: (system, cluster)
        for system, table in tables_of(sections).items()
        for name, cluster in table.items()
        if cluster
    }


def bits_of(sections: Sections) -> dict[str, int]:
    """The bit of every such cluster by its name."""
    return {name: cluster.bit for name, (_, cluster) in clusters_of(sections).items()}


def systems_of(sections: Sections) -> dict[str, str]:
    """The system of every declared cluster by its name, also of clusters that are invalid by themselves."""
    return {name: system for system, table in tables_of(sections).items() for name in table}


def tables_of(sections: Sections) -> dict[str, Mapping[str, LogCluster | None]]:
    """The clusters by section and name; None for one that is invalid by itself."""
    return {section.name: table or {} for section, table in sections.items() if section.name in SYSTEMS}


def check_clusters(clusters: Mapping[str, Mapping[str, LogCluster | None]]) -> list[str]:
    """The problems of the clusters of all systems, by section and name. Names and bits are unique across sections: a
    link names its ends without their system, and a record's path contains only bits."""
    every = [(section, name, cluster) for section, table in clusters.items() for name, cluster in table.items()]
    problems, names = list[str](), dict[str, str]()
    for section, name, _ in every:
        if (other := names.setdefault(name, section)) != section:
            problems.append(f"{section}.{name}: expected another name than that of {other}.{name}; found {shown(name)}")
    usable = [(section, name, cluster) for section, name, cluster in every if cluster]
    problems += [*_bits(usable), *_addresses(usable)]
    for section, table in clusters.items():
        problems += check_names(section, table)
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


def check_names(section: str, table: Mapping[str, object]) -> Iterator[str]:
    """The problems of the names of a table."""
    for name in table:
        if not NAME.fullmatch(name):
            yield f"{section}.{name}: expected a name of at most 64 letters, digits, - and _; found {shown(name)}"
