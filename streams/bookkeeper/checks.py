"""Checks of `trueup doctor` on the cluster's ZooKeeper: permissions, bookies, racks and the Auditor."""

import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from trueup.connectors.bookkeeper.bookie.security import bookie_tls
from trueup.connectors.bookkeeper.metadata import mark_codec, queries
from trueup.connectors.bookkeeper.metadata.addresses import Addresses
from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths
from trueup.connectors.bookkeeper.metadata.racks import RackMap, racks_of
from trueup.connectors.pulsar.layout import PulsarPaths as Owners
from trueup.connectors.zookeeper.client import CommittedNode, ZooKeeperClient, deletion
from trueup.connectors.zookeeper.errors import FORBIDDEN, TooOld, unread
from trueup.connectors.zookeeper.session import client_of
from trueup.state.common.counts import many
from trueup.state.common.errors import Retry
from trueup.state.common.tls import uses_tls
from trueup.state.deletion.settings import OPERATOR, DeletionSettings
from trueup.state.placement.policy.bookie_classes import depth
from trueup.state.placement.policy.regions import region_place
from trueup.state.placement.policy.zones import zone_place
from trueup.state.placement.settings import PlacementSettings
from trueup.state.settings.settings import ClusterSettings, Settings
from trueup.streams.bookkeeper import bookie_checks, worker_checks
from trueup.streams.runtime.checks import Check, fail, ok, tried, warn

OPEN_S = 5.0
DEFAULT_RACK = "/default-rack"


@dataclass(frozen=True, slots=True)
class OpenCluster:
    """A cluster with one open session."""

    settings: Settings
    client: ZooKeeperClient
    paths: BookKeeperPaths


def all_of(settings: Settings) -> Iterator[Check]:
    """All checks that need ZooKeeper, if the settings name its servers."""
    if settings.cluster.zookeeper:
        yield from tried("zookeeper", lambda: _cluster(settings))


def _cluster(settings: Settings) -> Iterator[Check]:
    cluster = settings.cluster
    client = client_of(cluster)
    client.open(OPEN_S)
    try:
        yield ok("zookeeper", f"session {client.session:#x} with {cluster.zookeeper}, {_identity(cluster)}")
        yield from tried("bookkeeper", lambda: _bookkeeper(settings, client))
    finally:
        client.shut()


def _identity(cluster: ClusterSettings) -> str:
    """How the server knows this client."""
    security = cluster.security
    named = {"SASL user": "sasl.username", "digest user": "digest.username", "certificate": "tls.certificate"}
    identities = [f"{name} {security[key]}" for name, key in named.items() if key in security]
    identities += [f"{scheme} of cluster.auth" for scheme in cluster.auth]
    return f"{'TLS' if uses_tls(security) else 'no TLS'}, {', '.join(identities) or 'no identity'}"


def _bookkeeper(settings: Settings, client: ZooKeeperClient) -> Iterator[Check]:
    seen = OpenCluster(settings, client, queries.paths_of(client, settings.cluster.ledgers_root))
    yield layout(seen)
    yield from tried("bulk reads", lambda: bulk(seen))
    yield from tried("rights", lambda: rights(seen))
    yield from tried("deletion", lambda: owners(seen))
    yield from tried("auditor", lambda: auditor(seen))
    yield from tried("racks", lambda: _bookies(seen))


def _bookies(seen: OpenCluster) -> Iterator[Check]:
    registered = queries.registered(seen.client, seen.paths)
    yield bookies(registered)
    if registered.hidden:
        yield hidden(registered)
    yield from tried(bookie_checks.NAME, lambda: _connections(seen, registered))
    places = locations(loaded_racks(seen), registered)
    yield racks(seen, places)
    if not seen.settings.cluster.autorecovery:
        yield worker_checks.none_named()
    for address in seen.settings.cluster.autorecovery:
        yield from worker_checks.worker(seen.settings, address, places, registered.hosts)


def _connections(seen: OpenCluster, registered: queries.Registered) -> Iterator[Check]:
    tls = bookie_tls(seen.settings.cluster.bookies)
    members = [*registered.writable, *registered.readonly]
    return bookie_checks.connections(members, Addresses(seen.client, seen.paths), tls)


def layout(seen: OpenCluster) -> Check:
    """BookKeeper's root is readable and its layout is supported."""
    name = queries.instance(seen.client, seen.paths.root) or "none"
    return ok("bookkeeper", f"{seen.paths.root}, {seen.paths.layout.value}, instance {name}")


def owners(seen: OpenCluster) -> Iterator[Check]:
    """If deletion is configured: the cluster has the INSTANCEID of deletion.instance, and the owners of ledgers are
    readable."""
    policy = seen.settings.section(DeletionSettings)
    if policy.owners == "none":
        return
    instance = queries.instance(seen.client, seen.paths.root) or "none"
    if policy.instance == instance:
        yield ok("deletion: instance", instance)
    elif policy.instance:
        yield fail(
            "deletion: instance",
            f"{instance}, not {policy.instance}",
            "check that this is the right cluster; no ledger is deleted until they match",
        )
    else:
        yield warn(
            "deletion: instance",
            instance,
            "check that this is the right cluster, then set deletion.instance to this value",
        )
    if policy.owners == OPERATOR:
        return
    top = Owners(policy.root).ledgers
    if seen.client.look(top) is None:
        yield fail("deletion: owners", f"no {top}", "set deletion.root; Pulsar's metadata must be in this ZooKeeper")
    else:
        yield ok("deletion: owners", f"{many(len(seen.client.listing(top)[0]), 'tenant')} below {top}")


def bulk(seen: OpenCluster) -> Check:
    """The server supports multi reads (ZooKeeper 3.6)."""
    try:
        list(seen.client.multi_read(seen.paths.root, [b"LAYOUT"]))
    except (TooOld, Retry):
        return warn(
            "bulk reads",
            "the server is older than ZooKeeper 3.6",
            "upgrade ZooKeeper: reads are slow, and recursive watches are not available",
        )
    return ok("bulk reads", "supported (many znodes per request)")


def rights(seen: OpenCluster) -> Iterator[Check]:
    """Marks and votes can be written. Each znode is created and deleted in one transaction, so no other client observes
    it."""
    for name, parent in (("marks", seen.paths.marks), ("vote", seen.paths.election)):
        problem = _may_create(seen, parent)
        if problem == "":
            yield ok(f"right: {name}", f"can create znodes below {parent}")
        elif seen.settings.section(PlacementSettings).mode == "observe":
            yield warn(
                f"right: {name}",
                problem,
                "grant it to the identity of cluster.security: approve and enforce require it",
            )
        else:
            yield fail(
                f"right: {name}",
                problem,
                "grant it to the identity of cluster.security, or set placement.mode to observe",
            )


def _may_create(seen: OpenCluster, parent: str) -> str:
    """Empty if znodes can be created below ``parent``, or below its nearest existing ancestor; otherwise the reason."""
    while parent != seen.paths.root and not seen.client.present(parent):
        parent = parent.rpartition("/")[0]
    path = f"{parent}/trueup-doctor-{uuid.uuid4().hex}"
    answer = next(iter(seen.client.commit([[seen.client.creation(path), deletion(path, -1)]])))
    if isinstance(answer, CommittedNode):
        bad = [code for code in answer.codes if code]
        return "" if not bad else f"{parent}: " + ("no permission" if FORBIDDEN in bad else f"ZooKeeper error {bad[0]}")
    return str(answer)


def bookies(registered: queries.Registered) -> Check:
    """At least one bookie is writable."""
    lost = len(registered.cookies - set(registered.writable) - set(registered.readonly))
    counts = f"{len(registered.writable)} writable, {len(registered.readonly)} read-only, {lost} with a cookie only"
    if not registered.writable:
        return fail("bookies", counts, "start bookies, or correct cluster.ledgers_root")
    return warn("bookies", counts, "restart or decommission the missing bookies") if lost else ok("bookies", counts)


def hidden(registered: queries.Registered) -> Check:
    """Registrations that may not be read."""
    error = unread("registrations of bookies", sorted(registered.hidden.values()))
    return warn("registrations", error.found, f"{error.todo}; the hosts and racks of these bookies are not known")


def loaded_racks(seen: OpenCluster) -> RackMap:
    """The rack map of these settings, with its current content."""
    from trueup.streams.bookkeeper.cluster import rack_map

    mapping = rack_map(seen.settings.racks)
    if mapping.znode:
        there = seen.client.look(mapping.znode)
        mapping.load(there[0] if there else None)
    return mapping


def locations(mapping: RackMap, registered: queries.Registered) -> dict[str, str]:
    """Rack of every bookie according to this rack map; the default rack if none is known."""
    bookies = sorted(registered.cookies | set(registered.writable) | set(registered.readonly))
    places = racks_of(mapping, bookies, registered.hosts, registered.hidden)
    return {bookie: rack or DEFAULT_RACK for bookie, rack in places.items()}


PLACES = {"region": ("/region/rack", region_place), "zone": ("/zone/upgradeDomain", zone_place)}
"""The form of locations under each policy that needs one, and what reads it."""


def racks(seen: OpenCluster, places: dict[str, str]) -> Check:
    """All bookies have racks, and there are enough racks."""
    by_rack, placement = Counter(places.values()), seen.settings.section(PlacementSettings)
    need, shown = placement.min_racks, ", ".join(f"{rack} {count}" for rack, count in sorted(by_rack.items()))
    if placement.policy in PLACES:
        form, place = PLACES[placement.policy]
        without = [bookie for bookie, rack in sorted(places.items()) if place(rack) is None]
        todo = f"give each bookie a location {form}, because placement.policy is {placement.policy}"
        return fail("racks", f"none of {form}: {', '.join(without[:3])}", todo) if without else ok("racks", shown)
    if len(by_rack) < need:
        todo = f"correct racks.*: placement.min_racks is {need}, and no ledger can adhere"
        return fail("racks", f"{many(len(by_rack), 'rack')}: {shown}", todo)
    if DEFAULT_RACK in by_rack:
        return warn("racks", shown, f"assign a rack to {many(by_rack[DEFAULT_RACK], 'bookie')} of {DEFAULT_RACK}")
    if len({depth(rack) for rack in by_rack}) > 1:
        return warn("racks", f"{shown}: different depths", "assign racks of the same depth to all bookies")
    return ok("racks", shown)


def auditor(seen: OpenCluster) -> Iterator[Check]:
    """Which process holds the Auditor's vote, and whether replication is enabled."""
    holder, placement = _holder(seen), seen.settings.section(PlacementSettings)
    voting = placement.hold_vote and placement.mode != "observe"
    if voting and holder and not holder.startswith("trueup"):
        todo = "restart this daemon while Trueup runs, so that the vote passes to Trueup"
        yield warn("auditor", f"{holder} holds the vote", todo)
    else:
        yield ok("auditor", f"{holder} holds the vote" if holder else "no process holds the vote")
    if seen.client.present(seen.paths.disable):
        yield warn("replication", "disabled", "enable it: bin/bookkeeper shell autorecovery -enable")
    else:
        yield ok("replication", "enabled")


def _holder(seen: OpenCluster) -> str:
    """Bookie id in the lowest vote; empty if there is none."""
    names = seen.client.listings([seen.paths.election])[0][0]
    votes = sorted(name for name in names if name.startswith(b"V_"))
    for name in votes:
        if node := seen.client.look(f"{seen.paths.election}/{name.decode()}"):
            return mark_codec.holder(node[0])
    return ""
