"""The liveness of bookies: sightings, the last topology, the policy and the time yield the next topology.

A bookie without a registration is PENDING until the grace period ends, then LOST; a bookie that returns in time was
never lost. A bookie with only a cookie, and a name that ledgers use but that has neither cookie nor registration, are
treated alike. A bookie whose cookie and registration are both gone was decommissioned: it stays LOST while a ledger
may name it, and is removed once no ledger names a lost bookie.

When too many bookies go away at once, the topology is *held* until enough of them return or an operator releases the
hold. A hold stops actions, not observations: its bookies become LOST like others, are marked as held, and no mark is
written for ledgers that name them. A single bookie is never held, whatever the size of the cluster.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from trueup.state.bookkeeper.observations import Sighting
from trueup.state.bookkeeper.topology import UNKNOWN_RACK, Bookie, NamespaceGroups, PlacementPolicy, Status, Topology

_REGISTERED = {"writable": Status.WRITABLE, "readonly": Status.READONLY}
_NAMES_SHOWN = 5


@dataclass(frozen=True, slots=True)
class MembershipPolicy:
    """The policy by which sightings become the liveness of bookies."""

    grace_ms: int = 60_000
    """How long a bookie can be away before it is LOST, in ms."""
    hold_share: float = 0.3
    """A simultaneous loss of more than this share of the bookies is held."""
    min_racks: int = 2
    """``min_racks``, ``enforce_min_racks``, ``placement``, ``collect_ms`` and ``restarted`` are copied to the
    topology."""
    enforce_min_racks: bool = False
    placement: PlacementPolicy = PlacementPolicy()
    namespaces: tuple[NamespaceGroups, ...] | None = None
    """The namespaces with isolation groups. None: they were not read now, and the last ones hold."""
    release_hold: int = 0
    """A counter. A higher value ends the current hold only."""
    collect_ms: int = 86_400_000
    restarted: int = 0
    unnamed: bool = False
    """Whether no ledger names a lost bookie. If so, bookies that were decommissioned are removed."""


@dataclass(frozen=True, slots=True)
class SettledTopology:
    """The result of `settle`."""

    topology: Topology
    """The current topology."""
    changed: bool
    """Whether verdicts may differ."""
    next_ms: int | None
    """The latest time to settle again, ms since the epoch: the end of the next grace period. None if no bookie is
    PENDING."""
    notes: tuple[str, ...]


def next_epoch(before: Topology | None, now_ms: int) -> int:
    """The epoch of the topology after this one.

    Buckets keep the highest epoch that they have seen. An epoch is at least the time in ms, and so exceeds earlier
    epochs even if the journal lost the newest topology or all of them.
    """
    return max(now_ms, before.epoch + 1 if before else 1)


def settle(seen: Sequence[Sighting], before: Topology | None, policy: MembershipPolicy, now_ms: int) -> SettledTopology:
    """Fold a complete list of sightings into the topology.

    ``before`` None: there is no earlier state, and unregistered bookies count as having gone away just now. Too many
    of them are held like any other loss, because Trueup itself may be disconnected.
    """
    old_bookies = {bookie.id: bookie for bookie in before.bookies} if before else {}
    sightings = {sighting.bookie: sighting for sighting in seen}
    bookies = [
        _grouped(_step(old_bookies.get(name), sightings.get(name), now_ms), old_bookies.get(name), sightings.get(name))
        for name in sorted({*old_bookies, *sightings})
    ]
    if policy.unnamed:
        bookies = [bookie for bookie in bookies if not _decommissioned(bookie, sightings.get(bookie.id))]
    held = _held(bookies, policy)
    let_go = bool(held and before and before.held and 0 <= before.released < policy.release_hold)
    held = "" if let_go else held
    bookies = [_marked(bookie, bool(held)) for bookie in bookies]
    bookies = [_expire(bookie, 0 if let_go else policy.grace_ms, now_ms) for bookie in bookies]
    released = -1
    if held:
        still = before is not None and bool(before.held) and before.released >= 0
        released = before.released if before is not None and still else policy.release_hold
    after = Topology(
        epoch=next_epoch(before, now_ms),
        at_ms=now_ms,
        bookies=tuple(bookies),
        min_racks=policy.min_racks,
        enforce_min_racks=policy.enforce_min_racks,
        held=held,
        released=released,
        collect_ms=policy.collect_ms,
        policy=policy.placement,
        namespaces=before.namespaces if policy.namespaces is None and before else policy.namespaces,
        restarted=policy.restarted,
    )
    notes = (*_notes(old_bookies, bookies, now_ms), *_held_notes(before.held if before else "", held, let_go))
    if before is not None and replace(after, epoch=before.epoch, at_ms=before.at_ms) == before:
        return SettledTopology(before, False, _next(before, policy), notes)
    return SettledTopology(after, True, _next(after, policy), notes)


def _step(before: Bookie | None, seen: Sighting | None, now_ms: int) -> Bookie:
    """One bookie after its sighting; the end of the grace period is handled later."""
    name = before.id if before else seen.bookie if seen else ""
    status = _REGISTERED.get(seen.registered) if seen else None
    rack = seen.rack if seen else None
    zxid = (seen.registered_zxid if seen else 0) or (before.registered_zxid if before else 0)
    if rack == UNKNOWN_RACK and before:
        rack = before.rack  # keep the last answer
    if status is None and before:
        # The rack of an absent bookie cannot be resolved: keep the last known one.
        rack = rack or before.rack
    if before is None:
        return Bookie(name, rack, status or Status.PENDING, now_ms, zxid, status or Status.WRITABLE, zxid)
    since = min(before.since_ms, now_ms)
    if status is None:
        if before.status in (Status.PENDING, Status.LOST):
            return replace(before, rack=rack, registered_zxid=zxid, since_ms=since)
        return Bookie(name, rack, Status.PENDING, now_ms, zxid, before.status, before.begun_zxid)
    # A bookie that turns read-only, or writable again, continues in the same process. In any other case it restarted.
    turned = before.status in _REGISTERED.values() and before.status is not status
    begun = before.begun_zxid if turned or zxid == before.registered_zxid else zxid
    return Bookie(name, rack, status, since if status is before.status else now_ms, zxid, status, begun)


def _grouped(bookie: Bookie, before: Bookie | None, seen: Sighting | None) -> Bookie:
    """The bookie with the groups of its sighting; the last ones hold until the rack map answers."""
    groups = seen.groups if seen else None
    if groups is None and before:
        groups = before.groups
    return bookie if bookie.groups == groups else replace(bookie, groups=groups)


def _decommissioned(bookie: Bookie, seen: Sighting | None) -> bool:
    """Whether a lost bookie has neither cookie nor registration."""
    return bookie.status is Status.LOST and (seen is None or not (seen.cookie or seen.registered))


def _expire(bookie: Bookie, grace_ms: int, now_ms: int) -> Bookie:
    if bookie.status is Status.PENDING and now_ms - bookie.since_ms >= grace_ms:
        return replace(bookie, status=Status.LOST, since_ms=now_ms)
    return bookie


def _missing(bookie: Bookie) -> bool:
    """Whether it went away, and nothing was decided on its ledgers yet."""
    return bookie.status is Status.PENDING or bookie.held


def _marked(bookie: Bookie, held: bool) -> Bookie:
    here = held and _missing(bookie)
    return bookie if bookie.held is here else replace(bookie, held=here)


def _held(bookies: Sequence[Bookie], policy: MembershipPolicy) -> str:
    """Why the ledgers of the missing bookies are not repaired; empty if they may be."""
    missing = [bookie.id for bookie in bookies if _missing(bookie)]
    counted = sum(bookie.status is not Status.LOST or bookie.held for bookie in bookies)
    if len(missing) < 2 or len(missing) <= policy.hold_share * counted:
        return ""
    names = ", ".join(missing[:_NAMES_SHOWN])
    more = f" and {len(missing) - _NAMES_SHOWN} more" if len(missing) > _NAMES_SHOWN else ""
    return (
        f"{len(missing)} of {counted} bookies went away at once, above the share of {policy.hold_share:g}: "
        f"{names}{more}; "
        "restore them, or increase placement.release_hold to have their ledgers repaired"
    )


def _next(topology: Topology, policy: MembershipPolicy) -> int | None:
    """When the grace period of the next missing bookie ends."""
    pending = [bookie.since_ms for bookie in topology.bookies if bookie.status is Status.PENDING]
    return min(pending) + policy.grace_ms if pending else None


def _notes(old_bookies: dict[str, Bookie], bookies: Sequence[Bookie], now_ms: int) -> list[str]:
    left = {bookie.id for bookie in bookies}
    out = [f"{name} was decommissioned" for name in sorted(old_bookies) if name not in left]
    for bookie in bookies:
        before = old_bookies.get(bookie.id)
        if before is None or before.status is bookie.status:
            restarted = before is not None and bookie.registered_zxid != before.registered_zxid
            out += [f"{bookie.id} registered again"] if restarted and bookie.status < Status.PENDING else []
            continue
        away = now_ms - before.since_ms
        out.append(
            {
                Status.PENDING: f"{bookie.id} went away; it was {before.status.name.lower()}",
                Status.LOST: f"{bookie.id} is lost",
            }.get(
                bookie.status,
                f"{bookie.id} is {bookie.status.name.lower()}"
                + {
                    Status.PENDING: f" again after {away} ms and was never lost",
                    Status.LOST: f" again, lost {away} ms ago",
                }.get(before.status, ""),
            )
        )
    return out


def _held_notes(before: str, now: str, let_go: bool) -> list[str]:
    if now and not before:
        return [f"held: {now}"]
    if before and not now:
        return ["the hold was released by an operator" if let_go else "the hold is over"]
    return []
