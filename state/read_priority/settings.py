"""The section ``read_priority`` of the settings: the read priority of Pulsar's brokers (PIP-73)."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trueup.state.common.options import COUNT, MODES, YEAR_S, key, shown
from trueup.state.common.patterns import matches, problems_of, regex_of
from trueup.state.read_priority.policies import Level
from trueup.state.read_priority.tiers import ReadPriority
from trueup.state.settings.section import Draft, Section
from trueup.state.settings.settings import ClusterSettings

UNMANAGED = "unmanaged"
PRIORITIES = (*map(str, ReadPriority), UNMANAGED)
ADDRESS = re.compile(r"https?://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?/?")


@dataclass(frozen=True, slots=True)
class ReadPrioritySettings:
    """The tier from which Pulsar's brokers read offloaded ledgers first. The stream runs if ``admin`` is set."""

    admin: list[str] = key(
        list,
        "Addresses of the brokers' admin API, http(s)://host:port; one after the other is tried, and the "
        "settings of all are compared",
    )
    token_env: str = key("", "Environment variable that contains the token for the admin API; empty: no token")
    ca: str = key("", "PEM file of the authorities of https addresses; empty: those of the system")
    mode: str = key(
        "observe",
        "observe: change nothing; approve: changes of policies and unloads wait for `trueup approve`; "
        "enforce: execute them",
        one_of=MODES,
        live=True,
    )
    declared: dict[str, str] = key(
        dict,
        "Read priority by namespace (tenant/namespace), topic (tenant/namespace/topic) or /regular expression/ "
        "of either: bookkeeper-first, tiered-storage-first or unmanaged; the first match applies. A topic whose entry "
        "is not the one of its namespace has a policy of its own",
        live=True,
    )
    unload: bool = key(
        False,
        "Also unload a topic after its priority was switched, so that its broker closes cached handles of "
        "ledgers; in mode approve each unload waits for a separate approval",
        live=True,
    )
    interval_s: float = key(60.0, "Interval in seconds between two passes", least=0.5, most=YEAR_S)
    stall_looks: int = key(
        2,
        "Consecutive passes that must find that a topic would stall before its priority is switched",
        least=1,
        most=1_000,
        live=True,
    )
    settle_looks: int = key(
        5,
        "Consecutive passes that must find the preferred tier whole before a switched priority returns",
        least=1,
        most=100_000,
        live=True,
    )
    settle_s: float = key(
        600.0,
        "Time in seconds for which the preferred tier must be whole before a switched priority returns",
        least=0,
        most=YEAR_S,
        live=True,
    )
    at_once: int = key(10, "Maximum number of changes per pass", least=1, most=10_000, live=True)
    checks: int = key(
        1_000,
        "Maximum number of ledgers per pass whose copies are checked; the ledgers of topics with a finding come "
        "first, then those that were checked longest ago",
        least=1,
        most=COUNT,
        live=True,
    )
    verify_bytes: int = key(
        4 << 30,
        "Number of bytes of tiered storage after which a pass verifies no further object; an object is read "
        "in full once, and again only if it changes",
        least=1,
        most=1 << 50,
        live=True,
    )
    max_topics: int = key(10_000, "Maximum number of managed topics; others are reported", least=1, most=1_000_000)
    lag_warning_s: float = key(
        3_600.0,
        "Time in seconds before a broker deletes a BookKeeper ledger at which its tiered copy must be whole",
        least=0,
        most=YEAR_S,
        live=True,
    )


@dataclass(frozen=True, slots=True)
class Declared:
    """The declared priority of a namespace or topic."""

    priority: ReadPriority
    level: Level
    """The level to whose policy the priority belongs."""
    pattern: str
    """The key of the entry in read_priority.declared that declares the priority."""


def declared_of(patterns: Mapping[str, str], namespace: str, topic: str = "") -> Declared | None:
    """The declared priority of a namespace, or with ``topic`` (its last part) of a topic; None: unmanaged."""
    of_namespace = _first(patterns, namespace)
    pattern = _first(patterns, namespace, f"{namespace}/{topic}") if topic else of_namespace
    if pattern is None or patterns[pattern] == UNMANAGED:
        return None
    level = Level.NAMESPACE if pattern == of_namespace else Level.TOPIC
    return Declared(ReadPriority(patterns[pattern]), level, pattern)


def _first(patterns: Mapping[str, str], *names: str) -> str | None:
    return next((pattern for pattern in patterns if any(matches([pattern], name) for name in names)), None)


def check(draft: Draft) -> Iterator[str]:
    """The problems of the section: key, expected, found. Addresses are not shown, as they can contain a secret."""
    settings, cluster = draft.section(ReadPrioritySettings), draft.section(ClusterSettings)
    if settings is None:
        return
    if not all(map(ADDRESS.fullmatch, settings.admin)):
        yield (
            "read_priority.admin: expected addresses http(s)://host[:port], without path or user; found something else"
        )
    if len({address.partition("://")[0] for address in settings.admin}) > 1:
        yield "read_priority.admin: expected addresses with one scheme; found http and https"
    if settings.admin and cluster and not cluster.zookeeper:
        yield "read_priority.admin: expected cluster.zookeeper to be set; found nothing"
    if settings.declared and not settings.admin:
        yield "read_priority.admin: expected the addresses of brokers, as read_priority.declared is set; found nothing"
    yield from problems_of("read_priority.declared", settings.declared)
    for pattern, value in settings.declared.items():
        if value not in PRIORITIES:
            expected = ", ".join(PRIORITIES)
            yield f"read_priority.declared: expected one of {expected} for {shown(pattern)}; found {shown(value)}"
        if regex_of(pattern) is None and (not pattern.count("/") or "://" in pattern):
            yield f"read_priority.declared: expected tenant/namespace[/topic]; found {shown(pattern)}"


def check_env(draft: Draft, env: Mapping[str, str]) -> Iterator[str]:
    """A problem if the variable of the token is not set."""
    settings = draft.section(ReadPrioritySettings)
    if settings and settings.token_env and not env.get(settings.token_env):
        yield f"read_priority.token_env: expected a variable that is set; found {shown(settings.token_env)} unset"


READ_PRIORITY = Section("read_priority", ReadPrioritySettings, check=check, check_env=check_env)
