"""The health of links."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trueup.streams.runtime.format import many
from trueup.streams.runtime.signs import Signs, Total, first

TROUBLED = ("stopped", "down", "stalled", "waiting", "slow")
"""States of a link that require attention."""


def signs(status: Mapping[str, Any]) -> Signs:
    """The health of links, from the application's status."""
    links = status["links"]
    states = Counter(link["state"] for link in links)
    return Signs(
        well=", ".join(f"{many(count, 'link')} {state}" for state, count in states.items()),
        attention=list(_links(links)),
        named=[f"link {link['link']}" for link in links],
        lines=[("Links", ", ".join(f"{count:,} {state}" for state, count in states.items()))] if links else [],
    )


def _links(links: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """One text per cluster that does not respond, whatever the number of its links, and one per other link."""
    down: dict[str, list[Mapping[str, Any]]] = {}
    for link in links:
        for cluster in link["down"]:
            down.setdefault(cluster, []).append(link)
    for cluster, some in down.items():
        names = first([link["link"] for link in some])
        text = f"cluster {cluster} does not respond, {'link' if len(some) == 1 else 'links'} {names}"
        yield f"{text}: {some[0]['down'][cluster]}"
    for link in links:
        if link["state"] in TROUBLED and not link["down"]:
            yield f"link {link['link']} is {link['state']}" + (f": {link['reason']}" if link["reason"] else "")


def trends(status: Mapping[str, Any]) -> Mapping[str, float]:
    """Copied records and bytes a second, and records that are not copied yet, if they are known of every link."""
    links = status["links"]
    lags = [link["lag_records"] for link in links]
    return {
        "records/s": Total(sum(link["copied"] for link in links)),
        "bytes/s": Total(sum(link["bytes"] for link in links)),
        **({"lag records": sum(lags)} if min(lags, default=-1) >= 0 else {}),
        "stopped partitions": sum(link["stopped"] for link in links),
    }
