"""Whether links and log directories, as declared, can work: each by itself, and all together."""

import re
from collections.abc import Iterable, Iterator, Mapping

from trueup.state.common.kafka_topics import TOPIC, internal
from trueup.state.common.options import shown
from trueup.state.common.patterns import problem_of, regex_of
from trueup.state.logdirs.settings import WINDOW, LogDirs
from trueup.state.replication.leases import flow_of, target_of
from trueup.state.replication.settings import Cluster, Link, start_of
from trueup.state.replication.topology import check_topology, routes_of

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
ENTRY_POINT = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
ADDRESS = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}")


def check(
    kafka: Mapping[str, Cluster | None], links: Mapping[str, Link | None], logdirs: Mapping[str, LogDirs | None]
) -> list[str]:
    """What is wrong with the declarations; None stands for one that has problems of its own already."""
    clusters = {name: cluster for name, cluster in kafka.items() if cluster}
    declared = {name: link for name, link in links.items() if link}
    problems = [*_clusters(clusters), *_names("kafka", kafka), *_names("links", links)]
    for name, link in declared.items():
        problems += [*_ends(f"links.{name}", link, kafka), *check_link(name, link)]
    for name, chosen in logdirs.items():
        if name not in kafka:
            problems.append(
                f"logdirs.{name}: expected one of kafka: {', '.join(kafka) or 'nothing is there'}; found {shown(name)}"
            )
        problems += check_entry("logdirs", name, chosen)
    problems += _flows(declared)
    return problems or check_topology(routes_of(declared))


def check_link(name: str, link: Link) -> list[str]:
    """What is wrong with one link, whatever the others."""
    path = f"links.{name}"
    return [*_topics(path, link), *_target(path, link), *_times(path, link), *_failures(path, link)]


def check_entry(section: str, name: str, entry: Link | LogDirs | None) -> list[str]:
    """What is wrong with one entry of links or logdirs, whatever the others."""
    if isinstance(entry, LogDirs):
        return list(_directories(f"{section}.{name}", entry))
    return check_link(name, entry) if entry else []


def _directories(path: str, chosen: LogDirs) -> Iterator[str]:
    yield from _expressions(path, chosen, ("exclude",))
    for place in chosen.exclude_dirs:
        if not place.startswith("/"):
            yield f"{path}.exclude_dirs: expected absolute paths, as the broker tells them; found {shown(place)}"
    for window in chosen.windows:
        found = WINDOW.fullmatch(window)
        if not found or found.groups()[:2] == found.groups()[2:]:
            yield f"{path}.windows: expected two different times, as 22:00-06:00; found {shown(window)}"


def _names(section: str, table: Mapping[str, object]) -> Iterator[str]:
    for name in table:
        if not NAME.fullmatch(name):
            yield f"{section}.{name}: expected a name of at most 64 letters, digits, - and _; found {shown(name)}"


def _clusters(clusters: Mapping[str, Cluster]) -> Iterator[str]:
    bits: dict[int, str] = {}
    addresses: dict[str, str] = {}
    for name, cluster in clusters.items():
        if (other := bits.setdefault(cluster.bit, name)) != name:
            yield f"kafka.{name}.bit: expected another than that of kafka.{other}; found {cluster.bit}"
        for address in cluster.bootstrap.split(","):
            if not ADDRESS.fullmatch(address.strip()):
                yield f"kafka.{name}.bootstrap: expected host:port[,host:port...]; found {shown(cluster.bootstrap)}"
            elif (other := addresses.setdefault(address.strip(), name)) != name:
                yield f"kafka.{name}.bootstrap: expected another cluster than kafka.{other}; found {address.strip()}"


def _ends(path: str, link: Link, kafka: Mapping[str, object]) -> Iterator[str]:
    for end, name in (("source", link.source), ("target", link.target)):
        if name not in kafka:
            yield f"{path}.{end}: expected one of kafka: {', '.join(kafka) or 'nothing is there'}; found {shown(name)}"
    if link.source == link.target:
        yield f"{path}.target: expected another cluster than {path}.source; found {shown(link.target)}"


def _topics(path: str, link: Link) -> Iterator[str]:
    yield from _expressions(path, link, ("topics", "exclude", "paused_topics", "groups", "config_exclude"))
    for name in link.topics:
        if regex_of(name) is None and not TOPIC.fullmatch(name):
            yield f"{path}.topics: expected names that Kafka allows, or /regular expressions/; found {shown(name)}"
        elif name in (link.heartbeat_topic, link.into) or internal(name):
            yield f"{path}.topics: expected topics that applications write; found {shown(name)}, which is internal"


def _expressions(path: str, entry: Link | LogDirs, leaves: Iterable[str]) -> Iterator[str]:
    for leaf in leaves:
        for pattern in getattr(entry, leaf):
            if problem := problem_of(pattern):
                yield f"{path}.{leaf}: expected a regular expression between slashes; found {shown(pattern)}: {problem}"


def _target(path: str, link: Link) -> Iterator[str]:
    if link.into:
        if not TOPIC.fullmatch(link.into) or internal(link.into):
            yield f"{path}.into: expected a name that Kafka allows, not an internal one; found {shown(link.into)}"
        if link.rename != "{topic}":
            yield f"{path}.rename: expected nothing, as {path}.into is given; found {shown(link.rename)}"
    elif "{topic}" not in link.rename or not _nameable(link.rename, link.source):
        wanted = "a name that Kafka allows with {topic} in it (for one topic use into)"
        yield f"{path}.rename: expected {wanted}; found {shown(link.rename)}"
    if not _nameable(link.dead_letter_topic, link.source):
        yield f"{path}.dead_letter_topic: expected a name that Kafka allows; found {shown(link.dead_letter_topic)}"
    elif target_of("t", link.dead_letter_topic, "", link.source) == target_of("t", link.rename, link.into, link.source):
        found = shown(link.dead_letter_topic)
        yield f"{path}.dead_letter_topic: expected another topic than what is copied; found {found}"
    if not TOPIC.fullmatch(link.heartbeat_topic):
        yield f"{path}.heartbeat_topic: expected a name that Kafka allows; found {shown(link.heartbeat_topic)}"


def _nameable(template: str, source: str) -> bool:
    filled = target_of("t", template, "", source)
    return TOPIC.fullmatch(filled) is not None and not internal(filled)


def _times(path: str, link: Link) -> Iterator[str]:
    if start_of(link.start) is None:
        wanted = "earliest, latest, time:2026-01-31T00:00:00Z or group:NAME"
        yield f"{path}.start: expected {wanted}; found {shown(link.start)}"
    if link.slow_s <= link.heartbeat_s:
        yield f"{path}.slow_s: expected more than {path}.heartbeat_s, {link.heartbeat_s}; found {link.slow_s}"
    if link.stalled_s <= link.slow_s:
        yield f"{path}.stalled_s: expected more than {path}.slow_s, {link.slow_s}; found {link.stalled_s}"


def _failures(path: str, link: Link) -> Iterator[str]:
    for leaf, code in (("hook", link.hook), ("transform", link.transform)):
        if code and not ENTRY_POINT.fullmatch(code):
            yield f"{path}.{leaf}: expected module:function; found {shown(code)}"
    if link.failures == "hook" and not link.hook:
        yield f"{path}.hook: expected module:function, as {path}.failures is hook; found nothing"
    if link.hook and link.failures != "hook":
        yield f"{path}.failures: expected hook, as {path}.hook is given; found {shown(link.failures)}"
    if link.transform and link.copy == "batches":
        yield f"{path}.copy: expected records or auto, as {path}.transform opens every record; found 'batches'"
    if link.failures != "stop" and link.copy == "batches":
        yield f"{path}.copy: expected records or auto, as {path}.failures handles single records; found 'batches'"


def _flows(links: Mapping[str, Link]) -> Iterator[str]:
    """Two links that write to one cluster as the same producer would each refuse what the other sends."""
    seen: dict[tuple[str, int], str] = {}
    for name, link in links.items():
        flow = flow_of(name, link.flow)
        other = seen.setdefault((link.target, flow), name)
        if other != name:
            yield f"links.{name}.flow: expected another than that of links.{other} to the same target; found {flow}"
