"""Objects in tiered storage that no owner points to: what that means, as a pure function of what both sides say.

An owner notes the UUID of a copy before the first byte of it is sent, and takes a new one for each attempt. So an
object that was there before its owner was read, and whose UUID that owner does not have, was forgotten: by a broker
that could not note that the copy is complete, or that gave up deleting it.
"""

from collections.abc import Mapping, Set
from typing import NamedTuple

from trueup.state.deletion.offloads import Copy, Pair
from trueup.state.deletion.owners import Status


class Part(NamedTuple):
    """One object, or an incomplete multipart upload. ``place``: store and key, for an upload with its id; ``size`` in
    bytes; ``since_ms``: written or begun, since the epoch."""

    place: str
    size: int
    since_ms: int


class Said(NamedTuple):
    """What an object says of itself: its managed ledger, and the Pulsar cluster that wrote it."""

    owner: str = ""
    cluster: str = ""


class Referenced(NamedTuple):
    """What owners point to: copies by pair, ledgers with the owner that lists them, and owners' own nodes."""

    copies: Mapping[Pair, Copy]
    listed: Mapping[int, str]
    status: Mapping[str, Status]


class Stray(NamedTuple):
    """All objects of one ledger that no owner points to, and by which rule."""

    ledger: int
    rule: str
    owner: str
    parts: tuple[Part, ...]


def judged(ledger: int, parts: tuple[Part, ...], said: Set[Said], clusters: Set[str], now: Referenced) -> Stray:
    """What strays of a ledger are. ``said``: of those that say anything; ``clusters``: names that count as ours."""
    owners = {each.owner for each in said} or {now.listed.get(ledger, "")}
    owner = min(owners)
    known = len(owners) == 1 and owner != "" and bool(clusters) and {each.cluster for each in said} <= clusters
    return Stray(ledger, _rule(ledger, owner, known, now), owner, parts)


def _rule(ledger: int, owner: str, known: bool, now: Referenced) -> str:
    if not known or now.status.get(owner, Status.GONE) is Status.GONE:
        return UNOWNED
    if now.status[owner] is not Status.READABLE:
        return "deletion.owner-unreadable"
    lister = now.listed.get(ledger)
    return REPLACED if lister == owner else FORGOTTEN if lister is None else UNOWNED


FORGOTTEN, REPLACED, UNOWNED = "deletion.copy-forgotten", "deletion.copy-replaced", "deletion.copy-unowned"
LOST = "deletion.copy-lost"
STRAYS = frozenset({FORGOTTEN, REPLACED, UNOWNED, LOST})
"""Rules that are about objects in tiered storage and not about a ledger's metadata."""
