"""History entries about groups that continue at the target."""

import threading
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from trueup.connectors.contract import LogId
from trueup.connectors.replication.group_sync import Checkpoint, CommittedOffsets, GroupSync
from trueup.connectors.replication.ports import SHARE
from trueup.state.common.errors import Retry
from trueup.streams.replication.links import group_sync
from trueup.streams.replication.links.group_sync import Mover
from trueup.streams.replication.links.snapshot import ClusterSnapshot, LinkFacts, LinkSnapshot
from trueup.streams.replication.manager import LinkManager
from trueup.streams.runtime.stream import Filter


class Rig:
    """The groups of a link. Each round moves the given groups."""

    def __init__(self) -> None:
        self.notes, self.now, self.found = list[tuple[str, ...]](), 0, list[Checkpoint]()
        declared = SimpleNamespace(groups=["/.*/"], mode="enforce", source="east", target="west")
        self.link = SimpleNamespace(
            name="east-west",
            copies={},
            lock=threading.RLock(),
            now_ms=lambda: self.now,
            declared=declared,
            snapshot=LinkSnapshot(),
            grown=threading.Event(),
        )
        groups = SimpleNamespace(shares=())
        self.mover = Mover(  # type: ignore[arg-type]
            self.link, groups, groups, lambda: self.link, list, lambda *note: self.notes.append(note)
        )

    def round(self, *names: str, partitions: int = 2, after_ms: int = 3_000) -> None:
        self.now += after_ms
        rows: Sequence[Checkpoint] = [moved(name, number) for name in names for number in range(partitions)]
        self.mover._committed = CommittedOffsets({name: {} for name in names})
        self.mover._sync = lambda *_: list(rows)  # type: ignore[method-assign]
        self.mover.reconcile()

    @property
    def summaries(self) -> list[str]:
        return [note[3].partition(":")[0] for note in self.notes]

    def pass_with(self, *rows: Checkpoint) -> None:
        """One observation and one pass with these rows."""
        self.mover._looked_ms = self.now
        self.mover._committed = CommittedOffsets({"billing": {}})
        self.mover._sync = lambda *_: list(rows)  # type: ignore[method-assign]
        self.mover.reconcile()


def moved(group: str, number: int) -> Checkpoint:
    place = LogId("orders", number)
    return Checkpoint(group, place, place, 7, 7, -1, 0, "moved", "")


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_round_is_one_row_with_its_rule(rig: Rig) -> None:
    rig.round("billing", "mail", partitions=4)
    assert [(note[1], note[2], note[4]) for note in rig.notes] == [("group", "moved", "replication.group-behind")]


def test_a_row_names_some_partitions_and_counts_the_others(rig: Rig) -> None:
    rig.round("billing", partitions=group_sync.SHOWN + 3)
    assert rig.notes[0][3].endswith("; and 3 partitions more")


def test_continuing_groups_are_reported_once_a_minute(rig: Rig) -> None:
    for _ in range(21):
        rig.round("billing")
    assert rig.summaries == ["1 group, 2 partitions"] * 2


def test_a_new_group_is_reported_at_once(rig: Rig) -> None:
    rig.round("billing")
    rig.round("billing", "mail")
    rig.round("billing")
    assert rig.summaries == ["1 group, 2 partitions", "2 groups, 4 partitions"]


HELD = Checkpoint("billing", LogId("us", 0), LogId("all", 0), -1, 0, 0, 3, "waiting", "nothing is committed in us-0")
FAILED = Checkpoint("billing", LogId("us", 0), LogId("all", 0), -1, action="failed", reason="no response")


def test_a_partition_in_which_nothing_is_committed_leaves_the_lag_known(rig: Rig) -> None:
    rig.pass_with(moved("billing", 0), HELD)
    known = rig.mover.lag()
    rig.pass_with(moved("billing", 0), FAILED)
    assert (known, rig.mover.lag()) == (3, -1)


def test_a_group_that_is_held_by_such_a_partition_has_an_offset_at_the_target(rig: Rig) -> None:
    rig.pass_with(moved("billing", 0), HELD)
    held = rig.mover.untranslated()
    rig.pass_with(moved("billing", 0), HELD._replace(translated=-1, reason="nothing was copied yet"))
    assert (held, rig.mover.untranslated()) == ({}, {"billing": "nothing was copied yet"})


class Cluster(SimpleNamespace):
    """A cluster with a consumer group and a share group, neither with an offset."""

    def states(self) -> dict[str, str]:
        return {"billing": "Stable", "sharing": SHARE, "other": SHARE}

    def offsets(self, groups: Sequence[str]) -> dict[str, dict[LogId, int]]:
        return {group: {} for group in groups}

    def ids(self, _topics: object) -> dict[str, str]:
        return {}


def test_a_share_group_is_a_finding_without_an_offset_at_the_target(rig: Rig) -> None:
    rig.link.declared.groups = ["billing", "sharing"]
    rig.mover._there = GroupSync(Cluster(), Cluster())  # type: ignore[arg-type]
    rig.mover.look()
    manager = LinkManager(*[None] * 5)  # type: ignore[arg-type]
    status = SimpleNamespace(state=lambda _now_ms: (None, []))
    manager._clock = lambda: rig.now
    manager.by_name["east-west"] = rig.link  # type: ignore[assignment]
    manager.watches["east-west"] = SimpleNamespace(status=status, mover=rig.mover)  # type: ignore[assignment]
    found = [(one.rule, one.about["link"], one.reason) for one in manager.findings(Filter())]
    assert rig.mover.untranslated() == {"sharing": group_sync.NO_OFFSETS}
    assert found == [("replication.group-untranslated", "east-west", f"group sharing: {group_sync.NO_OFFSETS}")]
    assert rig.mover.names == ("billing",)


class Loading(SimpleNamespace):
    """The groups of a cluster whose coordinator does not respond."""

    shares = ()

    def committed(self, *_asked: object) -> CommittedOffsets:
        raise Retry("the offsets of groups", "a coordinator that loads", "retrying")


def test_groups_that_are_not_observed_for_long_are_an_error_and_their_lag_is_unknown(rig: Rig) -> None:
    rig.pass_with(moved("billing", 0))
    rig.link.snapshot = LinkSnapshot(LinkFacts(ClusterSnapshot(), ClusterSnapshot(), 1))
    rig.mover._there = Loading()  # type: ignore[assignment]
    rig.mover.look()
    known = rig.mover.lag()
    rig.now += group_sync.STALE_MS + 1
    with pytest.raises(Retry):
        rig.mover.look()
    assert (known, rig.mover.lag()) == (0, -1)
