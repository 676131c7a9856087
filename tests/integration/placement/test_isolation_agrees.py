"""The bookies that a ledger's isolation groups allow, compared with Pulsar's IsolatedBookieEnsemblePlacementPolicy."""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError

from tests.integration.placement.policy_jvm import policy_gateway
from trueup.connectors.bookkeeper.metadata.racks import PulsarRacks
from trueup.connectors.embedded.processes import wait_until
from trueup.state.bookkeeper.isolation import KEY, POLICY_CLASS, isolation_of
from trueup.state.bookkeeper.topology import Bookie, PlacementPolicy, Status, Topology
from trueup.state.placement.policy.groups import groups_of

pytestmark = pytest.mark.servers
SEED, CASES = 20_261_130, 120
GROUPS = ("a", "b", "c", "default", " a")
STATUSES = (Status.WRITABLE, Status.WRITABLE, Status.READONLY, Status.LOST)


@dataclass(frozen=True)
class Case:
    """Bookies with status and groups, and the groups of a ledger in its metadata (None: no policy)."""

    bookies: dict[str, tuple[Status, tuple[str, ...]]]
    size: int
    properties: dict[str, str] | None

    @property
    def custom(self) -> dict[str, bytes]:
        config = {"policyClass": POLICY_CLASS, "properties": self.properties}
        return {} if self.properties is None else {KEY: json.dumps(config).encode()}

    @property
    def mapping(self) -> bytes:
        """The content of Pulsar's znode /bookies."""
        return json.dumps(
            {
                group: {
                    bookie: {"rack": f"/r{at % 3}", "hostname": bookie}
                    for at, (bookie, (_, groups)) in enumerate(self.bookies.items())
                    if group in groups
                }
                for group in GROUPS
                if any(group in groups for _, groups in self.bookies.values())
            }
        ).encode()

    def with_status(self, status: Status) -> list[str]:
        return [bookie for bookie, (now, _) in self.bookies.items() if now is status]

    def topology(self, default: Sequence[str]) -> Topology:
        racks = PulsarRacks()
        racks.load(self.mapping)
        bookies = (
            Bookie(bookie, None, status, 0, groups=racks.groups(bookie)) for bookie, (status, _) in self.bookies.items()
        )
        return Topology(1, 0, tuple(bookies), policy=PlacementPolicy("isolation", groups=tuple(default)))


def generated(rng: random.Random) -> Case:
    def names() -> str:
        return ",".join(rng.sample([*GROUPS, "none"], rng.randint(0, 2)))

    bookies = {
        f"127.0.0.{at}:3181": (rng.choice(STATUSES), tuple(rng.sample(GROUPS, rng.choice([0, 1, 1, 1, 2]))))
        for at in range(1, rng.randint(3, 9))
    }
    properties = {"isolationBookieGroups": names(), "secondaryIsolationBookieGroups": names()}
    return Case(bookies, rng.randint(1, 4), properties if rng.random() < 0.85 else None)


class Isolated:
    """One object of Pulsar's class, over a metadata store in memory."""

    def __init__(self, gateway: JavaGateway, case: Case, default: str) -> None:
        self._jvm, pulsar = gateway.jvm, gateway.jvm.org.apache.pulsar
        self._parse = self._jvm.org.apache.bookkeeper.net.BookieId.parse
        store = pulsar.metadata.api.MetadataStoreFactory.create(
            "memory:local", pulsar.metadata.api.MetadataStoreConfig.builder().build()
        )
        store.put("/bookies", case.mapping, self._jvm.java.util.Optional.empty()).join()
        conf = self._jvm.org.apache.bookkeeper.conf.ClientConfiguration()
        conf.setProperty("METADATA_STORE_INSTANCE", store)
        conf.setProperty("isolationBookieGroups", default)
        self._policy = pulsar.bookie.rackawareness.IsolatedBookieEnsemblePlacementPolicy()
        bookkeeper = self._jvm.org.apache.bookkeeper
        self._policy.initialize(
            conf,
            self._jvm.java.util.Optional.empty(),
            None,
            None,
            bookkeeper.stats.NullStatsLogger.INSTANCE,
            bookkeeper.net.BookieSocketAddress.LEGACY_BOOKIEID_RESOLVER,
        )
        self._policy.onClusterChanged(
            self._ids(case.with_status(Status.WRITABLE)), self._ids(case.with_status(Status.READONLY))
        )

    def _ids(self, bookies: Sequence[str]) -> Any:
        ids = self._jvm.java.util.HashSet()
        for bookie in bookies:
            ids.add(self._parse(bookie))
        return ids

    def excluded(self, case: Case) -> set[str]:
        """The bookies that replaceBookie excludes for this ledger: it adds them, and the members, to the set that it
        receives."""
        members = self._jvm.java.util.ArrayList()
        for at in range(case.size):
            members.add(self._parse(f"127.0.9.{at}:3181"))
        custom, excluded = self._jvm.java.util.HashMap(), self._jvm.java.util.HashSet()
        for key, value in case.custom.items():
            custom.put(key, value)
        try:
            self._policy.replaceBookie(case.size, case.size, case.size, custom, members, members.get(0), excluded)
        except Py4JJavaError as error:
            if "BKNotEnoughBookiesException" not in str(error.java_exception.toString()):
                raise
        return {str(bookie.toString()) for bookie in excluded}


@pytest.fixture(scope="module")
def gateway() -> Iterator[JavaGateway]:
    with policy_gateway("pulsar-4.2.4") as gateway:
        yield gateway


@pytest.mark.parametrize("default", ["a,b", "b", "*"])
def test_the_allowed_bookies_are_those_that_the_class_does_not_exclude(gateway: JavaGateway, default: str) -> None:
    rng = random.Random(f"{SEED} {default}")
    for case in (generated(rng) for _ in range(CASES)):
        allowed = groups_of(case.topology(default.split(","))).allowed(isolation_of(case.custom), case.size)
        living = {*case.with_status(Status.WRITABLE)}
        expected = living if allowed is None else living & allowed
        policy = Isolated(gateway, case, default)
        # The class reads the groups in another thread, and excludes no bookie before.
        wait_until(lambda: living - policy.excluded(case) == expected, 20.0, f"{case}: {sorted(expected)}")  # noqa: B023
