"""The section ``deletion`` of the settings."""

from collections.abc import Iterator
from dataclasses import dataclass

from trueup.state.common.options import COUNT, MODES, YEAR_S, key
from trueup.state.settings.section import Draft, Section
from trueup.state.settings.settings import ClusterSettings

OPERATOR = "operator"
OWNERS = ("none", "pulsar", OPERATOR)


@dataclass(frozen=True, slots=True)
class DeletionSettings:
    """The deletion stream: ledgers that their owners no longer reference. A deletion cannot be undone."""

    owners: str = key(
        "none",
        "Metadata that determine which ledgers are in use; none: nothing is deleted; pulsar: managed ledgers "
        "of Pulsar; operator: only ledgers named by `trueup delete ledger` are deleted",
        one_of=OWNERS,
    )
    root: str = key("", "Path at the end of Pulsar's metadataStoreUrl, if it has one")
    instance: str = key(
        "",
        "INSTANCEID of the BookKeeper cluster; if it is empty or differs from that of the cluster, nothing is deleted",
    )
    exclusive: bool = key(
        False,
        "Whether no other Pulsar cluster stores ledgers in this BookKeeper cluster; while false, nothing is deleted",
    )
    mode: str = key(
        "observe",
        "observe: report findings only; approve: deletions wait for `trueup approve`; enforce: execute "
        "deletions without approval",
        one_of=MODES,
        live=True,
    )
    paused: bool = key(False, "Start no new deletions; deletions in progress are still confirmed", live=True)
    grace_s: float = key(
        3_600.0,
        "Time in seconds for which a ledger must have been unreferenced before it is deleted; a broker's own "
        "attempts end after three minutes",
        least=0,
        most=YEAR_S,
        live=True,
    )
    missing_s: float = key(
        300.0,
        "Time in seconds after which a referenced ledger that does not exist is reported; a broker that "
        "deletes a topic deletes its ledgers before the list",
        least=0,
        most=YEAR_S,
        live=True,
    )
    max_deletions: int = key(
        10_000,
        "Maximum number of deletions in progress; ledgers that have been unreferenced longest are deleted first",
        least=1,
        most=COUNT,
        live=True,
    )
    deletes_per_s: float = key(
        20.0, "Maximum number of ledgers deleted per second", least=0.1, most=1_000_000, live=True
    )
    retry_s: float = key(
        60.0,
        "Initial delay in seconds before a failed deletion is retried; doubles with each attempt, up to one hour",
        least=1,
        most=YEAR_S,
        live=True,
    )
    confirm_s: float = key(
        10.0,
        "Initial delay in seconds before bookies are queried again for a deleted ledger; doubles with each "
        "attempt, up to one hour",
        least=0.5,
        most=YEAR_S,
        live=True,
    )


def check(draft: Draft) -> Iterator[str]:
    """The problems of the section: key, expected, found."""
    settings, cluster = draft.section(DeletionSettings), draft.section(ClusterSettings)
    if settings is None:
        return
    if settings.owners != "none" and cluster and not cluster.zookeeper:
        yield "deletion.owners: expected none without cluster.zookeeper; found " + settings.owners
    if settings.mode != "observe" and not settings.instance:
        detail = f"because deletion.mode is {settings.mode}; found nothing; `trueup doctor` shows it"
        yield f"deletion.instance: expected the INSTANCEID of the BookKeeper cluster {detail}"
    if settings.owners == "pulsar" and settings.mode != "observe" and not settings.exclusive:
        detail = "found false; ledgers of other Pulsar clusters could be deleted"
        yield f"deletion.exclusive: expected true because deletion.mode is {settings.mode}; {detail}"


DELETION = Section("deletion", DeletionSettings, check=check)
