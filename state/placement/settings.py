"""The section ``placement`` of the settings."""

from collections.abc import Iterator
from dataclasses import dataclass

from trueup.state.common.options import COUNT, MODES, YEAR_S, key
from trueup.state.settings.section import Draft, Section
from trueup.state.settings.settings import RackSettings

POLICIES = ("rack", "region", "zone", "isolation")


@dataclass(frozen=True, slots=True)
class PlacementSettings:
    """The placement stream: replicas of ledgers on enough racks and on live bookies."""

    mode: str = key(
        "observe",
        "observe: report findings only; approve: actions wait for `trueup approve`; enforce: execute all actions",
        one_of=MODES,
        live=True,
    )
    executor: str = key(
        "workers",
        "Who repairs ledgers. workers: AutoRecovery daemons, for which Trueup writes marks; copy: Trueup itself, which "
        "also repairs ledgers that the workers cannot",
        one_of=("workers", "copy"),
        live=True,
    )
    drain: list[str] = key(
        list,
        "Bookies whose replicas are copied to other bookies, so that they can be removed; see `trueup drain`",
        live=True,
    )
    copy_enabled: bool = key(False, "Permit executor copy: Trueup writes entries to bookies and changes metadata")
    paused: bool = key(False, "Write no new marks; existing marks remain", live=True)
    grace_s: float = key(
        60.0,
        "Time in seconds for which a bookie may be unavailable before it counts as lost",
        least=0,
        most=YEAR_S,
        live=True,
    )
    hold_share: float = key(
        0.3,
        "If more than this share of the bookies is lost at once, repairs are held until an operator releases them",
        least=0,
        most=1,
        live=True,
    )
    release_hold: int = key(
        0, "Increase by one to release a hold and repair the held ledgers", least=0, most=COUNT, live=True
    )
    max_marks: int = key(
        200,
        "Maximum number of outstanding marks; the ledgers at highest risk are marked first, but at most every "
        "second is one that workers failed to repair",
        least=0,
        most=COUNT,
        live=True,
    )
    marks_per_s: float = key(500.0, "Maximum number of marks written per second", least=0.1, most=1_000_000, live=True)
    decline_retry_s: float = key(
        60.0,
        "Initial delay in seconds before a ledger that a worker left unchanged is marked again; doubles with "
        "each attempt",
        least=1,
        most=YEAR_S,
        live=True,
    )
    give_up_s: float = key(
        1_800.0,
        "Time in seconds after which a mark that workers failed to repair is withdrawn; the ledger is marked "
        "again later",
        least=1,
        most=YEAR_S,
        live=True,
    )
    min_racks: int = key(2, "minNumRacksPerWriteQuorum of the cluster", least=0, most=1_000, live=True)
    enforce_min_racks: bool = key(False, "enforceMinNumRacksPerWriteQuorum of the cluster", live=True)
    policy: str = key(
        "rack",
        "ensemblePlacementPolicy of the clients: rack (RackawareEnsemblePlacementPolicy), region "
        "(RegionAwareEnsemblePlacementPolicy), zone (ZoneawareEnsemblePlacementPolicy), isolation (Pulsar's "
        "IsolatedBookieEnsemblePlacementPolicy, which needs racks.source: pulsar)",
        one_of=POLICIES,
        live=True,
    )
    regions: list[str] = key(list, "reppRegionsToWrite of the clients, for policy region", live=True)
    min_regions: int = key(
        2, "reppMinimumRegionsForDurability of the clients, for policy region", least=0, most=1_000, live=True
    )
    min_zones: int = key(2, "minNumZonesPerWriteQuorum of the clients, for policy zone", least=0, most=1_000, live=True)
    desired_zones: int = key(
        3, "desiredNumZonesPerWriteQuorum of the clients, for policy zone", least=0, most=1_000, live=True
    )
    groups: list[str] = key(
        list,
        "bookkeeperClientIsolationGroups of the brokers, for policy isolation: the groups of ledgers whose metadata "
        "have none",
        live=True,
    )
    secondary_groups: list[str] = key(
        list, "bookkeeperClientSecondaryIsolationGroups of the brokers, for policy isolation", live=True
    )
    workers_isolate: bool = key(
        False,
        "The AutoRecovery workers use Pulsar's class and isolationBookieGroups, so they replace a lost bookie within "
        "the groups of the ledger",
        live=True,
    )
    leave_isolation: bool = key(
        False,
        "Mark ledgers also if the workers may move replicas out of the isolation groups; they are then reported as "
        "outside",
        live=True,
    )
    collect_s: float = key(
        86_400.0,
        "gcOverreplicatedLedgerWaitTime of the bookies in seconds; until it has passed, a bookie that "
        "returned accepts its replicas again",
        least=0,
        most=YEAR_S,
        live=True,
    )
    restarted: int = key(
        0,
        "Increase by one after restarting bookies that refuse ledgers which they held before",
        least=0,
        most=COUNT,
        live=True,
    )
    hold_vote: bool = key(
        True,
        "Take part in the election of the Auditor in modes approve and enforce; BookKeeper's Auditor takes over "
        "when Trueup stops",
    )
    stale_s: float = key(
        60.0,
        "Maximum age of observations in seconds; if they are older, every verdict is unknown and no action is executed",
        least=1,
        most=YEAR_S,
        live=True,
    )


def _check(draft: Draft) -> Iterator[str]:
    placement, racks = draft.section(PlacementSettings), draft.section(RackSettings)
    if placement and placement.executor == "copy" and not placement.copy_enabled:
        yield "placement.executor: expected workers because placement.copy_enabled is false; found copy"
    if placement and racks and placement.policy == "isolation" and racks.source != "pulsar":
        yield (
            f"racks.source: expected pulsar because placement.policy is isolation, whose groups are in Pulsar's znode "
            f"/bookies; found {racks.source}"
        )


PLACEMENT = Section("placement", PlacementSettings, check=_check)
