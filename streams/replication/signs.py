"""The health of links."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trueup.streams.runtime.format import many
from trueup.streams.runtime.signs import Signs, first

TROUBLED = ("stopped", "down", "stalled", "waiting", "slow")
"""States of a link that an operator should know of."""


def signs(status: Mapping[str, Any]) -> Signs:
    """What the application's status says of links."""
    links = status["links"]
    states = Counter(link["state"] for link in links)
    return Signs(
        well=", ".join(f"{many(count, 'link')} {state}" for state, count in states.items()),
        attention=list(_links(links)),
        named=[f"link {link['link']}" for link in links],
        lines=[("Links", ", ".join(f"{count:,} {state}" for state, count in states.items()))] if links else [],
    )


def _links(links: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A cluster that does not answer is one fault, however many links it has."""
    down: dict[str, list[Mapping[str, Any]]] = {}
    for link in links:
        for cluster in link["down"]:
            down.setdefault(cluster, []).append(link)
    for cluster, some in down.items():
        names = first([link["link"] for link in some])
        text = f"cluster {cluster} does not answer, {'link' if len(some) == 1 else 'links'} {names}"
        yield f"{text}: {some[0]['down'][cluster]}"
    for link in links:
        if link["state"] in TROUBLED and not link["down"]:
            yield f"link {link['link']} is {link['state']}" + (f": {link['reason']}" if link["reason"] else "")
