"""The section ``deletion`` of the settings: whose ledgers may be deleted, when, and how many at once."""

from dataclasses import dataclass

from trueup.state.common.options import COUNT, MODES, YEAR_S, key

OPERATOR = "operator"
OWNERS = ("none", "pulsar", OPERATOR)


@dataclass(frozen=True, slots=True)
class Deletion:
    """The deletion stream: ledgers that their owners forgot. A deletion cannot be undone."""

    owners: str = key(
        "none", "whose metadata say which ledgers are in use; operator: nobody's, only what `trueup delete ledger` "
        "names is deleted; none: nothing ever is", one_of=OWNERS,
    )  # fmt: skip
    root: str = key("", "path at the end of Pulsar's metadataStoreUrl, if it has one")
    instance: str = key("", "INSTANCEID of the BookKeeper cluster; nothing is deleted while it is another or empty")
    exclusive: bool = key(
        False, "whether no other Pulsar cluster keeps ledgers in this BookKeeper; nothing is deleted while it is false"
    )
    mode: str = key(
        "observe", "observe: report only; approve: deletions wait for `trueup approve`; enforce",
        one_of=MODES, live=True,
    )  # fmt: skip
    paused: bool = key(False, "delete nothing new; what is deleted is still confirmed", live=True)
    grace_s: float = key(
        3_600.0, "how long a ledger has to have been forgotten; a broker's own attempts end after three minutes",
        least=0, most=YEAR_S, live=True,
    )  # fmt: skip
    missing_s: float = key(
        300.0, "how long what an owner lists has to have been missing before that is reported; a broker that deletes a "
        "topic deletes its ledgers before its list", least=0, most=YEAR_S, live=True,
    )  # fmt: skip
    max_markers: int = key(
        10_000, "deletions under way at most; the longest forgotten go first", least=1, most=COUNT, live=True
    )
    deletes_per_s: float = key(20.0, "ledgers deleted a second at most", least=0.1, most=1_000_000, live=True)
    retry_s: float = key(
        60.0, "first wait after a deletion that failed; doubles, an hour at most", least=1, most=YEAR_S, live=True
    )
    confirm_s: float = key(
        10.0, "first wait before bookies are asked again whether they still have it; doubles, an hour at most",
        least=0.5, most=YEAR_S, live=True,
    )  # fmt: skip
