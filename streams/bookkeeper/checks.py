"""The cluster as ZooKeeper shows it: rights, bookies and racks, who audits."""

import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from trueup.connectors.bookkeeper.metadata import mark_codec, queries
from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths
from trueup.connectors.pulsar.layout import PulsarPaths as Owners
from trueup.connectors.zookeeper.client import CommittedNode, ZooKeeperClient, deletion
from trueup.connectors.zookeeper.errors import FORBIDDEN, TooOld
from trueup.state.common.errors import Retry
from trueup.state.deletion.settings import OPERATOR
from trueup.state.placement.bookie_classes import depth
from trueup.state.settings.settings import Settings
from trueup.streams.bookkeeper import worker_checks
from trueup.streams.runtime.checks import Check, fail, ok, tried, warn
from trueup.streams.runtime.format import many

OPEN_S = 5.0
DEFAULT_RACK = "/default-rack"


@dataclass(frozen=True, slots=True)
class OpenCluster:
    """The cluster of one open session."""

    settings: Settings
    client: ZooKeeperClient
    paths: BookKeeperPaths


def all_of(settings: Settings) -> Iterator[Check]:
    """Every check that needs ZooKeeper, if the settings name its servers."""
    if settings.cluster.zookeeper:
        yield from tried("zookeeper", lambda: _cluster(settings))


def _cluster(settings: Settings) -> Iterator[Check]:
    chosen = settings.cluster
    client = ZooKeeperClient(
        chosen.zookeeper, timeout=chosen.session_timeout_ms / 1000, auth_data=list(chosen.auth.items()) or None
    )
    client.open(OPEN_S)
    try:
        yield ok("zookeeper", f"session {client.session:#x} with {chosen.zookeeper}")
        yield from tried("bookkeeper", lambda: _bookkeeper(settings, client))
    finally:
        client.shut()


def _bookkeeper(settings: Settings, client: ZooKeeperClient) -> Iterator[Check]:
    seen = OpenCluster(settings, client, queries.paths_of(client, settings.cluster.ledgers_root))
    yield layout(seen)
    yield from tried("bulk reads", lambda: bulk(seen))
    yield from tried("rights", lambda: rights(seen))
    yield from tried("deletion", lambda: owners(seen))
    yield from tried("auditor", lambda: auditor(seen))
    yield from tried("racks", lambda: _bookies(seen))


def _bookies(seen: OpenCluster) -> Iterator[Check]:
    found = queries.registered(seen.client, seen.paths)
    yield bookies(found)
    places = locations(seen, found)
    yield racks(seen, places)
    if not seen.settings.cluster.autorecovery:
        yield worker_checks.none_named()
    for address in seen.settings.cluster.autorecovery:
        yield from worker_checks.worker(seen.settings, address, places, found.hosts)


def layout(seen: OpenCluster) -> Check:
    """BookKeeper's root can be read, and names a layout that we know."""
    name = queries.instance(seen.client, seen.paths.root) or "none"
    return ok("bookkeeper", f"{seen.paths.root}, {seen.paths.layout.value}, instance {name}")


def owners(seen: OpenCluster) -> Iterator[Check]:
    """Where it is wanted: the cluster is the one that deletions were allowed on, and what points to ledgers can be
    read."""
    chosen = seen.settings.deletion
    if chosen.owners == "none":
        return
    found = queries.instance(seen.client, seen.paths.root) or "none"
    if chosen.instance == found:
        yield ok("deletion: instance", found)
    elif chosen.instance:
        yield fail("deletion: instance", f"{found}, not {chosen.instance}", "is this the cluster? nothing is deleted")
    else:
        yield warn("deletion: instance", found, "set deletion.instance to it once you have made sure of the cluster")
    if chosen.owners == OPERATOR:
        return
    top = Owners(chosen.root).ledgers
    if seen.client.look(top) is None:
        yield fail("deletion: owners", f"no {top}", "set deletion.root; Pulsar's metadata must be in this ZooKeeper")
    else:
        yield ok("deletion: owners", f"{len(seen.client.listing(top)[0])} tenants below {top}")


def bulk(seen: OpenCluster) -> Check:
    """The server knows multi reads (ZooKeeper 3.6)."""
    try:
        list(seen.client.multi_read(seen.paths.root, [b"LAYOUT"]))
    except (TooOld, Retry):
        return warn(
            "bulk reads", "the server is older than ZooKeeper 3.6", "upgrade: reading is slow, watches are missing"
        )
    return ok("bulk reads", "many znodes in one request")


def rights(seen: OpenCluster) -> Iterator[Check]:
    """Marks and votes may be written: created and deleted in one transaction, so nobody ever sees them."""
    for name, parent in (("marks", seen.paths.marks), ("vote", seen.paths.election)):
        found = _may_create(seen, parent)
        if found == "":
            yield ok(f"right: {name}", f"may create below {parent}")
        elif seen.settings.placement.mode == "observe":
            yield warn(f"right: {name}", found, "needed in modes approve and enforce: give cluster.auth this right")
        else:
            yield fail(f"right: {name}", found, "give the identity of cluster.auth this right, or use mode observe")


def _may_create(seen: OpenCluster, parent: str) -> str:
    """Empty if znodes may be created below ``parent``, or below what is there of it; else why not."""
    while seen.client.look(parent) is None and parent != seen.paths.root:
        parent = parent.rpartition("/")[0]
    path = f"{parent}/trueup-doctor-{uuid.uuid4().hex}"
    answer = next(iter(seen.client.commit([[seen.client.creation(path), deletion(path, -1)]])))
    if isinstance(answer, CommittedNode):
        bad = [code for code in answer.codes if code]
        return "" if not bad else f"{parent}: " + ("no permission" if FORBIDDEN in bad else f"ZooKeeper error {bad[0]}")
    return str(answer)


def bookies(found: queries.Registered) -> Check:
    """Bookies are there."""
    lost = len(found.cookies - set(found.writable) - set(found.readonly))
    counts = f"{len(found.writable)} writable, {len(found.readonly)} read-only, {lost} with a cookie only"
    if not found.writable:
        return fail("bookies", counts, "start bookies, or correct cluster.ledgers_root")
    return warn("bookies", counts, "return or decommission those that are away") if lost else ok("bookies", counts)


def locations(seen: OpenCluster, found: queries.Registered) -> dict[str, str]:
    """Rack of every bookie as our settings have it, the default rack where none is known."""
    from trueup.streams.bookkeeper.cluster import rack_map

    known = rack_map(seen.settings.racks)
    if known.znode:
        there = seen.client.look(known.znode)
        known.load(there[0] if there else None)
    places = known.resolve(sorted(found.cookies | set(found.writable) | set(found.readonly)), found.hosts)
    return {bookie: rack or DEFAULT_RACK for bookie, rack in places.items()}


def racks(seen: OpenCluster, places: dict[str, str]) -> Check:
    """Bookies have racks, and there are enough racks."""
    by_rack, need = Counter(places.values()), seen.settings.placement.min_racks
    shown = ", ".join(f"{rack} {count}" for rack, count in sorted(by_rack.items()))
    if len(by_rack) < need:
        todo = f"placement.min_racks is {need}: correct racks.*, or no ledger can adhere"
        return fail("racks", f"{many(len(by_rack), 'rack')}: {shown}", todo)
    if DEFAULT_RACK in by_rack:
        return warn("racks", shown, f"give {many(by_rack[DEFAULT_RACK], 'bookie')} of {DEFAULT_RACK} a rack in the map")
    if len({depth(rack) for rack in by_rack}) > 1:
        return warn("racks", f"{shown}: not of one depth", "give every bookie a rack of the same depth")
    return ok("racks", shown)


def auditor(seen: OpenCluster) -> Iterator[Check]:
    """Who holds the lowest vote, and whether replication is switched on."""
    holder, chosen = _holder(seen), seen.settings.placement
    wanted = chosen.hold_vote and chosen.mode != "observe"
    if wanted and holder and not holder.startswith("trueup"):
        todo = "BookKeeper audits beside Trueup: restart that daemon once Trueup runs, and the vote passes on"
        yield warn("auditor", f"{holder} holds the vote", todo)
    else:
        yield ok("auditor", f"{holder} holds the vote" if holder else "nobody holds the vote")
    if seen.client.look(seen.paths.disable) is not None:
        yield warn("replication", "disabled", "enable it: bin/bookkeeper shell autorecovery -enable")
    else:
        yield ok("replication", "enabled")


def _holder(seen: OpenCluster) -> str:
    """Bookie id in the lowest vote, empty if there is none."""
    names = seen.client.listings([seen.paths.election])[0][0]
    votes = sorted(name for name in names if name.startswith(b"V_"))
    for name in votes:
        if found := seen.client.look(f"{seen.paths.election}/{name.decode()}"):
            return mark_codec.holder(found[0])
    return ""
