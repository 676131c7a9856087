"""The section ``placement`` of the settings."""

from dataclasses import dataclass

from trueup.state.common.options import COUNT, MODES, YEAR_S, key


@dataclass(frozen=True, slots=True)
class Placement:
    """The placement stream: what may be done, how soon and how much of it at once."""

    mode: str = key(
        "observe",
        "observe: findings only; approve: actions wait for `trueup approve`; enforce",
        one_of=MODES,
        live=True,
    )
    paused: bool = key(False, "act on nothing new; marks already written stay", live=True)
    grace_s: float = key(
        60.0, "how long a bookie may be away before its ledgers are repaired", least=0, most=YEAR_S, live=True
    )
    hold_share: float = key(
        0.3, "losing more than this share of the bookies at once is held for an operator", least=0, most=1, live=True
    )
    release_hold: int = key(0, "raise by one to act on a loss that is held", least=0, most=COUNT, live=True)
    max_marks: int = key(
        200, "marks outstanding at most; the riskiest ledgers go first", least=0, most=COUNT, live=True
    )
    marks_per_s: float = key(500.0, "marks written a second at most", least=0.1, most=1_000_000, live=True)
    decline_retry_s: float = key(
        60.0,
        "first wait before a ledger is marked again that a worker left as it was; doubles",
        least=1,
        most=YEAR_S,
        live=True,
    )
    give_up_s: float = key(
        1_800.0, "a mark that workers have tried in vain for so long is taken back, to be tried again later",
        least=1, most=YEAR_S, live=True,
    )  # fmt: skip
    min_racks: int = key(2, "minNumRacksPerWriteQuorum of the cluster", least=0, most=1_000, live=True)
    enforce_min_racks: bool = key(False, "enforceMinNumRacksPerWriteQuorum of the cluster", live=True)
    collect_s: float = key(
        86_400.0, "gcOverreplicatedLedgerWaitTime of the bookies; sooner, a bookie that returned takes its copies back",
        least=0, most=YEAR_S, live=True,
    )  # fmt: skip
    restarted: int = key(
        0,
        "raise by one after restarting bookies that refuse ledgers which they held before",
        least=0,
        most=COUNT,
        live=True,
    )
    hold_vote: bool = key(
        True, "take the Auditor's place while in approve or enforce; BookKeeper takes over when we go"
    )
    stale_s: float = key(
        60.0,
        "older observations than this make every verdict unknown and stop all acts",
        least=1,
        most=YEAR_S,
        live=True,
    )
