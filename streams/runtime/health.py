"""Healthy or not, in one line, and why. Blind is not green: what cannot be seen counts against health."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trueup.state.placement.readiness import few
from trueup.streams.runtime.format import age, many, short

HELD = "Held: a mass loss waits for an operator"
LEVELS = ("healthy", "attention", "held", "blind")
"""From good to bad; `healthy` alone is good."""
BLINDING = ("zookeeper", "journal", "spark", "owners")
"""Sources without which nothing that is shown is known to hold; each link and each Kafka cluster stands for itself."""
NAMED = 3
TROUBLED = ("stopped", "down", "stalled", "waiting", "slow")
"""States of a link that somebody should know of."""
CALM = ("logdirs.cannot-cordon",)
"""Rules of log directories that nobody can do anything about today."""


@dataclass(frozen=True, slots=True)
class Health:
    """``level`` is one of `LEVELS`; ``reasons`` is empty when it is healthy."""

    level: str
    line: str
    reasons: tuple[str, ...]


def health(status: Mapping[str, Any]) -> Health:
    """The health that an application's status (`streams.web.engine.Engine.status`) amounts to."""
    blind, held, attention = list(_blind(status)), list(_held(status)), list(_attention(status))
    reasons = tuple(dict.fromkeys([*blind, *held, *attention]))
    if blind:
        return Health("blind", "Blind: the cluster cannot be seen as it is now", reasons)
    if held:
        line = "Held by Trueup; BookKeeper's Auditor is not bound" if status["unbound"] else HELD
        return Health("held", line, reasons)
    if attention:
        return Health("attention", "Needs attention", reasons)
    return Health("healthy", f"Healthy: {' and '.join(_well(status))}", ())


def _well(status: Mapping[str, Any]) -> Iterator[str]:
    if status["watches_ledgers"]:
        late = f", {status['not_judged']:,} not judged yet" if status["not_judged"] else ""
        yield f"{many(status['counts']['true'], 'ledger')} true{late}"
    if status["logdirs"]:
        yield f"{many(sum(row['directories'] for row in status['logdirs']), 'log directory', 'log directories')} level"
    if status["links"]:
        states = Counter(link["state"] for link in status["links"])
        yield ", ".join(f"{many(count, 'link')} {state}" for state, count in states.items())


def _blind(status: Mapping[str, Any]) -> Iterator[str]:
    if not status["ready"]:
        yield from status["problems"] or ["not ready: the view is not complete yet"]
    for source in status["sources"]:
        if source["state"] == "down" and source["name"] in BLINDING:
            yield _silent(source)
    if status["counts"]["unknown"] == status["ledgers"] > status["not_judged"]:
        yield f"{many(status['ledgers'], 'ledger')} unknown, which is all"


def _held(status: Mapping[str, Any]) -> Iterator[str]:
    if status["held"]:
        yield str(status["held"])
        if status["unbound"]:
            yield str(status["unbound"])


def _ledgers(status: Mapping[str, Any]) -> Iterator[str]:
    counts = status["counts"]
    if counts["drifted"]:
        oldest = status["oldest_drift_ms"]
        yield f"{many(counts['drifted'], 'ledger')} drifted" + (f", the oldest for {age(oldest)}" if oldest else "")
    if counts["blocked"]:
        yield f"{many(counts['blocked'], 'ledger')} blocked: no remedy exists now"
    unknown = counts["unknown"] - status["not_judged"]
    if 0 < unknown < status["ledgers"]:
        yield f"{many(unknown, 'ledger')} unknown: nothing can be said"
    if not few(status["not_judged"], status["ledgers"]):
        yield f"{status['not_judged']:,} of {many(status['ledgers'], 'ledger')} not judged yet"
    if status["unbound"] and status["mode"] != "observe":
        yield str(status["unbound"])


def _names(status: Mapping[str, Any]) -> list[str]:
    """What links are called among sources and problems; their state says what is wrong with them."""
    return [f"link {link['link']}" for link in status["links"]]


def _links(links: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A cluster that does not answer is one fault, however many links it has."""
    down: dict[str, list[Mapping[str, Any]]] = {}
    for link in links:
        for cluster in link["down"]:
            down.setdefault(cluster, []).append(link)
    for cluster, some in down.items():
        names = _first([link["link"] for link in some])
        said = f"Kafka cluster {cluster} does not answer, {'link' if len(some) == 1 else 'links'} {names}"
        yield f"{said}: {some[0]['down'][cluster]}"
    for link in links:
        if link["state"] in TROUBLED and not link["down"]:
            yield f"link {link['link']} is {link['state']}" + (f": {link['reason']}" if link["reason"] else "")


def _attention(status: Mapping[str, Any]) -> Iterator[str]:
    yield from _ledgers(status)
    yield from _lost(status["bookies"].get("lost", []))
    links = _names(status)
    yield from (text for text in status["problems"] if not text.startswith(tuple(f"{name}: " for name in links)))
    yield from _links(status["links"])
    for row in status["logdirs"]:
        wrong = {rule: count for rule, count in row["rules"].items() if rule not in CALM}
        if wrong:
            told = ", ".join(f"{short(rule)} on {many(count, 'broker')}" for rule, count in wrong.items())
            yield f"log directories of {row['kafka']}: {told}"
    for stream in status["streams"]:
        if stream["state"] == "failed" and not any(stream["error"] in text for text in status["problems"]):
            yield f"stream {stream['name']} failed: {stream['error']}"
    yield from _quiet([source for source in status["sources"] if source["name"] not in links])


def _quiet(sources: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for source in sources:
        if source["state"] == "slow" or (source["state"] == "down" and source["name"] not in BLINDING):
            yield _silent(source)


def _lost(bookies: Sequence[str]) -> Iterator[str]:
    if bookies:
        yield f"{many(len(bookies), 'bookie')} lost: {_first(bookies)}"


def _first(names: Sequence[str]) -> str:
    """Some of these names, and how many more there are."""
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def _silent(source: Mapping[str, Any]) -> str:
    detail = f": {source['detail']}" if source["detail"] else ""
    return f"{source['name']} is {source['state']}, last heard {age(source['age_ms'])} ago{detail}"
