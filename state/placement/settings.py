"""The section ``placement`` of the settings."""

from dataclasses import dataclass

from trueup.state.common.options import COUNT, MODES, YEAR_S, key
from trueup.state.settings.section import Section


@dataclass(frozen=True, slots=True)
class PlacementSettings:
    """The placement stream: replicas of ledgers on enough racks and on live bookies."""

    mode: str = key(
        "observe",
        "observe: report findings only; approve: actions wait for `trueup approve`; enforce: execute all actions",
        one_of=MODES,
        live=True,
    )
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


PLACEMENT = Section("placement", PlacementSettings)
