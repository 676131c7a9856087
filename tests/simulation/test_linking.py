"""Mutation tests of the simulation of links: the intended checker detects each planted defect."""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from tests.simulation.link_part import LinkPart
from tests.simulation.linking import LinkParts
from tests.simulation.planted import complaint
from tests.simulation.simulation import Parts, Simulation
from trueup.connectors.contract import LogId, Progress
from trueup.connectors.replication.group_sync import OffsetMapping
from trueup.connectors.replication.headers import MARK
from trueup.connectors.replication.ports import Columns, Read
from trueup.connectors.replication.pump import PumpCopier, Tagged, Tagging
from trueup.connectors.replication.track import LogTrack
from trueup.state.replication.anomalies import CopyObservation
from trueup.state.replication.offset_map import Translation
from trueup.state.replication.provenance import HEADER
from trueup.state.replication.verdicts import PartitionObservation
from trueup.streams.config.live import Live
from trueup.streams.journal.journal import JournalRecord
from trueup.streams.replication.links import monitor
from trueup.streams.replication.links.checkpoints import Copy
from trueup.streams.replication.links.link import Link
from trueup.streams.replication.links.status import LinkStatus

LINKS = ("links",)


class DeafLive(Live):
    """Ignores the deletion of a record."""

    def _seen(self, record: JournalRecord) -> None:
        if record.value is not None:
            super()._seen(record)


def untagged(self: Tagging, prefix: bytes, records: Columns, refused: str = "") -> Tagged:
    """Writes the records without the clusters that they passed."""
    tagged = MANY(self, prefix, records, refused)
    headers = [[header for header in row if header[0] != HEADER] for row in tagged.columns.headers]
    return tagged._replace(columns=tagged.columns._replace(headers=headers))


MANY = Tagging.many


def eager(self: PumpCopier, reads: dict[LogId, Read]) -> None:
    """Counts records as acknowledged when they are sent."""
    WRITE(self, reads)
    for source, read in reads.items():
        self._tracks[source].offset = max(self._tracks[source].offset, read.next)


WRITE = PumpCopier._write


def hasty(self: PumpCopier, track: LogTrack, read: Read, tagged: Tagged) -> None:
    """Counts no deleted records."""
    SETTLE(self, track, read._replace(lost=0), tagged)


SETTLE = PumpCopier._settle


def unstored(self: Link, copies: Iterable[Copy], must: bool = False) -> None:
    """Stores only what may be stored later."""
    SAVE(self, () if must else copies)


SAVE = Link._save


def present(self: LinkStatus, source: LogId) -> PartitionObservation:
    """Takes a missing topic for an existing one."""
    return PART(self, source)._replace(gone=False, unknown="")


PART = LinkStatus._part


def unsent(self: PumpCopier, track: LogTrack, records: Columns, sent: Columns, written: Any) -> bool:
    """Takes records of a lost response for acknowledged ones."""
    if written.error is not None:
        track.offset = track.reached = sent.offsets[-1] + 1
        return True
    return TOOK(self, track, records, sent, written)


TOOK = PumpCopier._took


def ahead(self: OffsetMapping, offset: int) -> tuple[Translation, int]:
    """Translates every offset to the end of the copied records."""
    found, lag = TRANSLATE(self, offset)
    return (found if found.offset is None else Translation(max(found.offset, self.there.end)), lag)


TRANSLATE = OffsetMapping.translate


def unstopped(before: CopyObservation, now: CopyObservation) -> list[Any]:
    """Does not notice that a topic was replaced."""
    return [one for one in ANOMALIES(before, now) if not one.stops]


ANOMALIES = monitor.anomalies


def extended(self: Copy, progress: Progress, now_ms: int) -> None:
    """Takes progress for one record more than was acknowledged."""
    TAKE(self, replace(progress, position=replace(progress.position, offset=progress.position.offset + 1)), now_ms)


TAKE = Copy.take


def unlimited(self: Link) -> bool:
    """Copies in every mode."""
    return self.snapshot.choice is not None


def test_a_reader_that_believes_every_header_is_caught() -> None:
    says = "missing|arrived"
    assert re.search(says, complaint(says, Parts(links=LinkParts(trusting=True)), LINKS))


def test_a_live_setting_whose_deletion_is_ignored_is_caught() -> None:
    says = "told|mode|way|leads out"
    assert re.search(says, complaint(says, Parts(live=DeafLive), LINKS))


@pytest.mark.parametrize(
    ("owner", "name", "defect", "says"),
    [
        (Tagging, "many", untagged, "writes"),
        (PumpCopier, "_write", eager, "before"),
        (PumpCopier, "_settle", hasty, "deleted before"),
        (PumpCopier, "_took", unsent, "before"),
        (Link, "_save", unstored, "first offset"),
        (Link, "may_copy", unlimited, "mode"),
        (LinkStatus, "_part", present, ""),
        (OffsetMapping, "translate", ahead, "past unread"),
        (Copy, "take", extended, ""),
        (monitor, "anomalies", unstopped, ""),
    ],
    ids=lambda value: getattr(value, "__name__", "") if callable(value) else "",
)
def test_a_defect_of_a_link_is_caught(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, defect: Callable[..., Any], says: str
) -> None:
    monkeypatch.setattr(owner, name, defect)
    found = complaint(says, None, LINKS)
    assert not found.startswith("no complaint")
    assert says in found, found


def tags(headers: Iterable[tuple[str, bytes | None]]) -> list[str]:
    """The names of the headers of Trueup."""
    return [name for name, _ in headers if name in (HEADER, MARK)]


def test_a_run_has_what_links_can_meet() -> None:
    """Applications pass on headers of Trueup, and the opposite links copy these records."""
    passed = 0
    for seed in range(30):
        simulation = Simulation(seed, None, LINKS)
        simulation.run()
        part: LinkPart = simulation.parts["links"]  # type: ignore[assignment]
        logs = [log for c in part.clusters.by_name.values() for t in c.topics.values() for log in t.logs.values()]
        passed += sum(not record.link and bool(tags(record.headers)) for log in logs for _, record in log.records())
    assert passed > 0
