"""Restores the data of a target that lost it, from the source of a link.

The loop filter drops records that originated at the target. Each source partition therefore has a fence, its end offset
at the start of the refill: below the fence all records are copied again, from the fence on the filter applies
(`state.replication.provenance.Refill`). The opposite link restarts in the new log, where the filter drops refilled
records. It must not copy from the new log before the fence is set: its records could not be distinguished from lost
ones.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trueup.connectors.contract import LogId
from trueup.state.common.errors import Refused
from trueup.state.replication.provenance import Refill
from trueup.streams.replication.links.checkpoints import Copy
from trueup.streams.replication.links.link import Link
from trueup.streams.replication.links.monitor import LinkMonitor

Row = dict[str, Any]
REASON = "refill"
BUSY = "an earlier lease has not ended"
LOST = "replication.target-"


@dataclass(frozen=True, slots=True)
class Part:
    """One partition that may be refilled. ``start`` and ``end``: offsets of its source log. ``reason``: why a refill is
    needed, or why it cannot start yet; ``back``: the link that copies the partition back and must restart.

    ``stage``: planned, waiting (until the reason no longer applies), blocked, copying.
    """

    source: LogId
    target: LogId
    start: int
    end: int
    stage: str
    reason: str
    back: Link | None = None


class Refilling:
    """Refills of one link."""

    def __init__(self, watch: LinkMonitor) -> None:
        self._watch, self._link = watch, watch.link

    def rows(self) -> list[Row]:
        """One row per topic that a refill would copy, or copies."""
        return self._rows(self.parts())

    def _rows(self, parts: Sequence[Part]) -> list[Row]:
        sizes = self._watch.sides.sizes(part.source for part in parts) if parts else {}
        topics: dict[tuple[str, str, str, str], list[Part]] = {}
        for part in parts:
            topics.setdefault((part.source.topic, part.target.topic, part.stage, part.reason), []).append(part)
        return [
            {
                "link": self._link.name, "topic": topic, "target_topic": target, "partitions": len(some),
                "records": sum(part.end - part.start for part in some),
                "bytes": sum(sizes.get(part.source, 0) for part in some) if sizes else -1,
                "stage": stage, "reason": reason,
            }
            for (topic, target, stage, reason), some in sorted(topics.items())
        ]  # fmt: skip

    def begin(self) -> list[Row]:
        """Start the refill of all planned partitions. Returns `rows` afterwards. Idempotent. Raises `Refused` if there
        is nothing to refill, `Retry` if a cluster or the journal does not respond."""
        parts = self.parts()
        if not parts:
            raise Refused(
                f"a target of {self._link.name} that lost records", "none",
                "the target topics are unchanged; a topic that is deleted at the target can be refilled",
            )  # fmt: skip
        rows, ready = self._rows(parts), [part for part in parts if part.stage == "planned"]
        if ready:
            self._begin(ready)
        return [{**row, "stage": "copying"} if row["stage"] == "planned" else row for row in rows]

    def _begin(self, ready: Sequence[Part]) -> None:
        link, sides = self._link, self._watch.sides
        # The fence is read last: the opposite link holds no lease by then, and gets none before it restarts.
        logs = sides.logs([part.source for part in ready])
        begins = {
            part.source: (part.target, logs[part.source][0], Refill(self._held(part.source), logs[part.source][1]))
            for part in ready if part.source in logs
        }  # fmt: skip
        link.anew(begins, REASON)
        self._watch.accept_target()
        there = sides.logs([part.target for part in ready], at_target=True)
        for back in self._watch.backwards():
            mine: dict[LogId, tuple[LogId, int, Refill | None]] = {
                part.target: (part.source, there[part.target][0], None)
                for part in ready if part.back is back and part.target in there
            }  # fmt: skip
            if mine:
                back.anew(mine, REASON)
        records = sum(refill.until - start for _, start, refill in begins.values())
        topics = len({source.topic for source in begins})
        self._watch.note(link.name, REASON, "begun", f"{topics} topics, {len(begins)} partitions, {records} records")

    def _held(self, source: LogId) -> int:
        """The source offset below which the target had all records."""
        copy = self._link.copies.get(source)
        if copy is None:
            return 0
        return max(copy.position.offset, copy.refill.held if copy.refill is not None else 0, 0)

    def parts(self) -> list[Part]:
        """All partitions whose target lost its records or is empty. Raises `Refused` if a cluster does not respond."""
        self._watch.look()
        link, facts = self._link, self._link.snapshot.facts
        for one in (link, *self._watch.backwards()):
            if problem := one.snapshot.facts.source.problem or one.snapshot.facts.target.problem:
                raise Refused(f"a response from both clusters of {one.name}", problem, "repeat it after both respond")
        with link.lock:
            copies = {copy.source: copy for copy in link.current()}
        pairs = {**self._all(), **{source: copy.target for source, copy in copies.items()}}
        pairs = {source: target for source, target in pairs.items() if source.topic in facts.source.topics}
        here = self._watch.sides.logs(pairs)
        known = [target for target in pairs.values() if target in facts.target.topics.get(target.topic, ())]
        there = self._watch.sides.logs(known, at_target=True)
        found = []
        for source, target in sorted(pairs.items()):
            start, end = here.get(source, (0, 0))
            copy = copies.get(source)
            if end > start and (reason := self._lost(copy, target, there)):
                stage, why = self._stage(source, target, copy, there)
                found.append(Part(source, target, start, end, stage, why or reason, self._back(source, target)))
        return found

    def _all(self) -> Mapping[LogId, LogId]:
        """All partitions of the link, including those that were never copied."""
        logs = self._link.snapshot.facts.source.topics
        return {log: self._link.place(log) for topic in self._link.topics(logs) for log in logs[topic]}

    def _lost(self, copy: Copy | None, target: LogId, there: Mapping[LogId, tuple[int, int]]) -> str:
        """Why the target partition needs a refill; empty: it does not."""
        facts = self._link.snapshot.facts.target
        now, known = facts.ids.get(target.topic, ""), copy.target_id if copy is not None else ""
        if known and now and known != now:
            return "the target topic was recreated"
        if copy is not None and copy.excluded and self._watch.replaced:
            return self._watch.replaced
        if copy is not None and copy.excluded and target.topic not in facts.topics:
            return "the target topic was deleted"
        if copy is not None and copy.refill is not None and not copy.excluded:
            return "the refill is in progress"
        return "the target partition is empty" if there.get(target, (0, -1))[1] == 0 else ""

    def _stage(
        self, source: LogId, target: LogId, copy: Copy | None, there: Mapping[LogId, tuple[int, int]]
    ) -> tuple[str, str]:
        """The stage, and why the refill cannot start now."""
        link = self._link
        if copy is not None and copy.refill is not None and not copy.excluded:
            return "copying", ""
        hold = (link.snapshot.waiting or {}).get(target.topic)
        if link.snapshot.waiting is None or hold is not None or target not in there:
            return "waiting", hold.reason if hold is not None else "the target topic does not exist yet"
        if link.leased(source):
            excluded = copy is not None and copy.excluded
            return "waiting", BUSY if excluded else f"the link is copying; run `trueup link pause {link.name}`"
        back = self._back(source, target)
        if back is None:
            return "planned", ""
        other = back.copies[target]
        if self._another_log(other, target, there[target][1]):
            return ("planned", "") if other.excluded and not back.leased(target) else ("waiting", BUSY)
        if other.offset <= there[target][0]:
            return "planned", ""
        why = f"{back.name} has copied from the new topic, so its records cannot be distinguished from lost records"
        return "blocked", f"{why}; when that link has no lag, delete the topic at the target"

    def _back(self, source: LogId, target: LogId) -> Link | None:
        """The link that copies the target partition back."""
        found = (link for link in self._watch.backwards() if target in link.copies)
        return next((link for link in found if link.copies[target].target == source), None)

    def _another_log(self, back: Copy, target: LogId, end: int) -> bool:
        """Whether the opposite link's position belongs to a different log than the present one."""
        now = self._link.snapshot.facts.target.ids.get(target.topic, "")
        return back.offset > end or bool(back.source_id and now and back.source_id != now)


def undecided(watch: LinkMonitor, partitions: Iterable[LogId]) -> str:
    """The name of an opposite link whose target lost these partitions and was neither refilled nor reset since; until
    then ``watch`` must not copy them again. Empty: there is none."""
    chosen = set(partitions)
    for link in watch.backwards():
        with link.lock:
            lost = any(c.target in chosen and c.excluded and LOST in c.error for c in link.copies.values())
        if lost:
            return link.name
    return ""
