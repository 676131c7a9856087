"""Placement policies of a sandbox: the locations of its bookies, and the settings of its servers and of Trueup."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

POLICIES = ("rack", "region", "zone", "isolation")
PULSAR = "pulsar-4.2.4"
"""The jar set with Pulsar's class."""
ISOLATED = "org.apache.pulsar.bookie.rackawareness.IsolatedBookieEnsemblePlacementPolicy"
_BOOKKEEPER = "org.apache.bookkeeper.client."


@dataclass(frozen=True)
class SandboxPolicy:
    """One policy. The numbers of bookies are those of racks, or of regions, zones or groups."""

    kind: str = "rack"
    sizes: Sequence[int] = (3, 3)
    racks: Mapping[str, int] = field(init=False)
    """The number of bookies at each location. Bookies are numbered through them in this order."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "racks", dict(self._locations()))

    def _locations(self) -> list[tuple[str, int]]:
        """Each region, zone or group has two locations, with one bookie more at the first for an odd number."""
        numbers = [(number, size) for number, size in enumerate(self.sizes, start=1) if size]
        if self.kind == "rack":
            return [(f"/rack{number}", size) for number, size in numbers]
        form = {"region": "/region{}/rack{}", "zone": "/zone{}/domain{}", "isolation": "/group{}-rack{}"}[self.kind]
        parts = [(form.format(number, part), (size + 2 - part) // 2) for number, size in numbers for part in (1, 2)]
        return [(location, count) for location, count in parts if count]

    @property
    def groups(self) -> list[str]:
        """The isolation groups."""
        return [f"group{number}" for number in range(1, len(self.sizes) + 1)] if self.kind == "isolation" else []

    def group_of(self, location: str) -> str:
        """The isolation group of the bookies at a location."""
        return location.removeprefix("/").partition("-")[0]

    @property
    def settings(self) -> dict[str, object]:
        """Settings of clients and daemons."""
        if self.kind == "region":
            return {
                "ensemblePlacementPolicy": f"{_BOOKKEEPER}RegionAwareEnsemblePlacementPolicy",
                "reppRegionsToWrite": ";".join(self.regions),
                "reppMinimumRegionsForDurability": 2,
            }
        if self.kind == "zone":
            return {
                "ensemblePlacementPolicy": f"{_BOOKKEEPER}ZoneawareEnsemblePlacementPolicy",
                "minNumZonesPerWriteQuorum": 1,
                "desiredNumZonesPerWriteQuorum": 2,
            }
        return {"ensemblePlacementPolicy": f"{_BOOKKEEPER}RackawareEnsemblePlacementPolicy"}

    @property
    def regions(self) -> list[str]:
        """The regions that clients write to."""
        return [f"region{number}" for number in range(1, len(self.sizes) + 1)]

    @property
    def workers_repair(self) -> bool:
        """Whether workers can repair placement under this policy."""
        return self.kind in ("rack", "isolation")

    @property
    def placement(self) -> dict[str, object]:
        """The section placement of Trueup."""
        more: dict[str, dict[str, object]] = {
            "region": {"regions": self.regions, "min_regions": 2},
            "zone": {"min_zones": 1, "desired_zones": 2},
        }
        return {"policy": self.kind, **more.get(self.kind, {})}

    def isolated(self, group: str) -> dict[str, str]:
        """Settings of a client that writes to one group."""
        return {"ensemblePlacementPolicy": ISOLATED, "isolationBookieGroups": group}

    def mapping(self, places: Mapping[str, str]) -> bytes:
        """The content of Pulsar's znode /bookies. ``places``: the location of each bookie, by its id."""
        groups: dict[str, dict[str, dict[str, str]]] = {group: {} for group in self.groups}
        for bookie, location in places.items():
            groups[self.group_of(location)][bookie] = {"rack": location, "hostname": bookie.partition(":")[0]}
        return json.dumps(groups).encode()
