"""Clusters placed by isolation groups, regions or zones: real clients write, one application judges and repairs."""

import json
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import pytest

from tests.e2e.trueup import SETTINGS, Trueup, command
from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.demo.truth import Truth
from trueup.sandbox.policies import SandboxPolicy
from trueup.sandbox.writer import LedgerWriter

pytestmark = [pytest.mark.servers, pytest.mark.release]
ENTRIES, LEDGERS = 10, 8
BY_RACKS = {"ensemblePlacementPolicy": "org.apache.bookkeeper.client.RackawareEnsemblePlacementPolicy"}
Site = tuple[SandboxCluster, Trueup]


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest, new_root: Callable[[], Path]) -> Iterator[Site]:
    """A cluster of two regions, zones or groups, and an application in mode enforce."""
    policy = SandboxPolicy(request.param, (3, 3))
    with SandboxCluster(new_root(), autorecovery=1, kafka=True, settings=SETTINGS, policy=policy) as cluster:
        cluster.up()
        with Trueup(
            cluster,
            new_root(),
            cluster={"autorecovery": cluster.autorecovery_urls},
            placement={"mode": "enforce", "grace_s": 1, **policy.placement},
            journal={"bootstrap": cluster.kafka.bootstrap},
            **({"racks": {"source": "pulsar"}} if policy.groups else {}),
        ) as trueup:
            trueup.start()
            yield cluster, trueup


isolation, region, zone = (
    pytest.mark.parametrize("site", [kind], indirect=True) for kind in ("isolation", "region", "zone")
)


def outside(cluster: SandboxCluster, ledgers: list[int], group: str) -> set[int]:
    """Those of these ledgers that have a member outside the group, according to ZooKeeper."""
    there = {cluster.bookie_id(n) for n in cluster.bookies if cluster.policy.group_of(cluster.rack_of(n)) == group}
    with Truth(cluster) as truth:
        rows = truth.ledgers()
        ensembles = {int(rows.ledger[at]): rows.ensembles(at) for at in range(len(rows))}
    return {ledger for ledger in ledgers if {*chain(*ensembles[ledger])} - there}


def checks(trueup: Trueup) -> dict[str, str]:
    """The status of each check of doctor."""
    done = command("doctor", "-c", str(trueup.file), "-o", "json")
    assert done.out, done.err
    return {check["name"]: check["status"] for check in json.loads(done.out)}


@pytest.mark.parametrize("site", ["isolation", "region", "zone"], indirect=True)
def test_doctor_agrees_with_the_workers_and_the_racks(site: Site) -> None:
    assert {status for name, status in checks(site[1]).items() if "worker" in name or "racks" in name} == {"ok"}


@isolation
def test_a_lost_bookie_of_a_group_is_replaced_only_if_an_operator_permits_it(site: Site) -> None:
    cluster, trueup = site
    with LedgerWriter(cluster, group="group1") as writer:
        ledgers = [writer.write(2, 2, 2, ENTRIES) for _ in range(LEDGERS)]
    trueup.wait("all to be true", lambda status: status["counts"]["true"] == LEDGERS)
    cluster.kill("bookie1")
    blocked = trueup.until("ledgers that wait", lambda: trueup.findings("leaves-isolation-group"))
    assert (trueup.api("marks"), outside(cluster, ledgers, "group1")) == ([], set())
    assert trueup.json("describe", "ledger", str(next(iter(blocked))))["isolation"]["primary"] == ["group1"]
    trueup.set("placement.leave_isolation", "true")
    trueup.wait("all to be repaired", lambda status: status["counts"]["drifted"] + len(status["waiting"]) == 0)
    trueup.until("no loss", lambda: not {*trueup.findings("lost-member"), *trueup.findings("leaves-isolation-group")})
    trueup.until(
        "the members outside to be found",
        lambda: {*trueup.findings("outside-isolation-group")} == outside(cluster, ledgers, "group1"),
    )


@region
def test_an_ensemble_that_no_region_policy_forms_is_found_and_not_marked(site: Site) -> None:
    cluster, trueup = site
    with LedgerWriter(cluster) as writer:
        good = [writer.write(2, 2, 2, ENTRIES) for _ in range(LEDGERS)]
    with LedgerWriter(cluster, settings=BY_RACKS) as writer:
        bad = [writer.write(2, 2, 1, ENTRIES) for _ in range(LEDGERS)]
    trueup.until("the findings", lambda: sorted(trueup.findings()) == bad)
    assert ({*trueup.findings("too-few-regions")}, trueup.api("marks"), len(good)) == ({*bad}, [], LEDGERS)
    assert "region: 2 regions per write quorum in region1, region2" in trueup.run("status").out
    assert "Qa is too small" in trueup.run("describe", "ledger", str(bad[0])).out


@zone
def test_an_ensemble_that_no_zone_policy_accepts_is_found_and_not_marked(site: Site) -> None:
    cluster, trueup = site
    with LedgerWriter(cluster) as writer:
        good = [writer.write(2, 2, 2, ENTRIES) for _ in range(LEDGERS)]
    with LedgerWriter(cluster, settings=BY_RACKS) as writer:
        bad = [writer.write(3, 2, 2, ENTRIES) for _ in range(LEDGERS)]
    trueup.until("the findings", lambda: sorted(trueup.findings()) == bad)
    assert ({*trueup.findings("too-few-zones")}, trueup.api("marks"), len(good)) == ({*bad}, [], LEDGERS)
    assert "E is no multiple of Qw" in trueup.run("describe", "ledger", str(bad[0])).out
