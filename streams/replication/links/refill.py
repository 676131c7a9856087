"""Restores the data of a target that lost it, from the source of a link.

The loop filter drops records that originated at the target. Each source partition therefore has a fence, its end offset
at the start of the refill: below the fence all records are copied again, from the fence on the filter applies
(`state.replication.provenance.Refill`). The opposite link restarts in the new log, where the filter drops refilled
records. It must not copy from the new log before the fence is set: its records could not be distinguished from lost
ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trueup.connectors.contract import LogId
from trueup.state.common.counts import many
from trueup.state.common.errors import Refused
from trueup.state.replication.provenance import Refill
from trueup.state.replication.recovery import REFILL, WILL_BE, LogIdentity, PartitionStanding, Refillable, refillable
from trueup.streams.replication.links.link import Link
from trueup.streams.replication.links.monitor import LinkMonitor
from trueup.streams.replication.links.standing import Ends, Standings, back_of, ways_out
from trueup.streams.rows import Row

BUSY = "an earlier lease has not ended"
BLOCKED = (Refillable.BACK_COPIED, Refillable.RESET_FIRST, Refillable.RESTORED, Refillable.RETURNED)
STAGES = {Refillable.COPYING: "copying", **dict.fromkeys(BLOCKED, "blocked")}
LOST = {
    LogIdentity.OTHER: "the target topic was recreated",
    LogIdentity.GONE: "the target topic was deleted",
    LogIdentity.SHORT: "the target partition is empty",
    LogIdentity.SAME: "the target partition is empty",
}


@dataclass(frozen=True, slots=True)
class RefillPartition:
    """One partition that may be refilled."""

    source: LogId
    target: LogId
    start: int
    """The first offset of the source log."""
    end: int
    """The end offset of the source log."""
    stage: str
    """The stage: planned, waiting (until the reason no longer applies), blocked or copying."""
    reason: str
    """Why a refill is needed, or why it cannot start yet; empty while the refill is in progress."""
    back: Link | None = None
    """The link that copies the partition back and must restart; None if no link copies it back."""


class Refilling:
    """Refills of one link."""

    def __init__(self, watch: LinkMonitor) -> None:
        self._watch, self._link = watch, watch.link

    def rows(self) -> list[Row]:
        """One row per topic that a refill would copy, or copies."""
        return self._rows(self.parts())

    def _rows(self, parts: Sequence[RefillPartition]) -> list[Row]:
        sizes = self._watch.sides.sizes(part.source for part in parts) if parts else {}
        topics: dict[tuple[str, str, str, str], list[RefillPartition]] = {}
        for part in parts:
            topics.setdefault((part.source.topic, part.target.topic, part.stage, part.reason), []).append(part)
        return [
            {
                "link": self._link.name,
                "topic": topic,
                "target_topic": target,
                "partitions": len(some),
                "records": sum(part.end - part.start for part in some),
                "bytes": sum(sizes.get(part.source, 0) for part in some) if sizes else -1,
                "stage": stage,
                "reason": reason,
            }
            for (topic, target, stage, reason), some in sorted(topics.items())
        ]

    def begin(self) -> list[Row]:
        """Start the refill of all planned partitions. Returns `rows` afterwards. Idempotent. Raises `Refused` if there
        is nothing to refill, `Retry` if a cluster or the journal does not respond."""
        parts = self.parts()
        if not parts:
            raise Refused(f"a target of {self._link.name} that lost records", *self._none())
        rows, ready = self._rows(parts), [part for part in parts if part.stage == "planned"]
        if ready:
            self._begin(ready)
        return [{**row, "stage": "copying"} if row["stage"] == "planned" else row for row in rows]

    def _none(self) -> tuple[str, str]:
        """Why no partition can be refilled, and what to do."""
        commands = [way.command for way in ways_out(self._watch) if way.recommended]
        if commands:
            more = f"; {many(len(commands) - 1, 'more command')} in `trueup plan`" if len(commands) > 1 else ""
            return "none that a refill can restore", f"run `{commands[0]}`{more}"
        return "none", "the target topics are unchanged; a topic that is deleted at the target can be refilled"

    def _begin(self, ready: Sequence[RefillPartition]) -> None:
        link, sides = self._link, self._watch.sides
        # The fence is read last: the opposite link holds no lease by then, and gets none before it restarts.
        logs = sides.logs([part.source for part in ready])
        begins = {
            part.source: (part.target, logs[part.source][0], Refill(self._held(part.source), logs[part.source][1]))
            for part in ready
            if part.source in logs
        }
        link.anew(begins, REFILL)
        self._watch.accept_target()
        there = sides.logs([part.target for part in ready], at_target=True)
        for back in (watch.link for watch in self._watch.backwards()):
            mine: dict[LogId, tuple[LogId, int, Refill | None]] = {
                part.target: (part.source, there[part.target][0], None)
                for part in ready
                if part.back is back and part.target in there
            }
            if mine:
                back.anew(mine, f"{REFILL} of {link.name}")
        records = sum(refill.until - start for _, start, refill in begins.values())
        counts = (len({source.topic for source in begins}), "topic"), (len(begins), "partition"), (records, "record")
        self._watch.note(link.name, REFILL, "begun", ", ".join(many(count, noun) for count, noun in counts))

    def _held(self, source: LogId) -> int:
        """The source offset below which the target had all records; 0 if they were those of another log."""
        link = self._link
        copy, now = link.copies.get(source), link.snapshot.facts.source.ids.get(source.topic, "")
        if copy is None or copy.source_id != now:
            return 0
        return max(copy.position.offset, copy.refill.held if copy.refill is not None else 0, 0)

    def parts(self) -> list[RefillPartition]:
        """All partitions whose target lost its records or is empty. Raises `Refused` if a cluster does not respond."""
        link, backwards = self._link, self._watch.backwards()
        for watch in (self._watch, *backwards):
            watch.look()
            facts = watch.link.snapshot.facts
            if problem := facts.source.problem or facts.target.problem:
                found_at = f"a response from both clusters of {watch.link.name}"
                raise Refused(found_at, problem, "repeat it after both respond")
        facts = link.snapshot.facts
        with link.lock:
            copies = {copy.source: copy for copy in link.current()}
        pairs = {**self._all(), **{source: copy.target for source, copy in copies.items()}}
        pairs = {source: target for source, target in pairs.items() if source.topic in facts.source.topics}
        here = self._watch.sides.logs(pairs)
        targets = [target for target in pairs.values() if target in facts.target.topics.get(target.topic, ())]
        standings = Standings(self._watch, here, self._watch.sides.logs(targets, at_target=True))
        return [
            part
            for source, target in sorted(pairs.items())
            if (part := self._part(source, target, here, standings)) is not None
        ]

    def _part(self, source: LogId, target: LogId, here: Ends, standings: Standings) -> RefillPartition | None:
        mine, back = standings.of(source), back_of(self._watch, source)
        stage = refillable(mine, standings.opposite(back) if back is not None else None)
        if stage is Refillable.NOTHING:
            return None
        start, end = here[source]
        other = back.watch.link if back is not None else None
        name = "waiting" if stage in WILL_BE else STAGES.get(stage, "planned")
        return RefillPartition(
            source, target, start, end, name, self._why(stage, source.topic, target, mine, other), other
        )

    def _all(self) -> Mapping[LogId, LogId]:
        """All partitions of the link, including those that were never copied."""
        logs = self._link.snapshot.facts.source.topics
        return {log: self._link.place(log) for topic in self._link.topics(logs) for log in logs[topic]}

    def _why(self, stage: Refillable, topic: str, target: LogId, mine: PartitionStanding, back: Link | None) -> str:
        """Why a partition needs a refill, or why that cannot start yet."""
        if stage is Refillable.COPYING:
            return ""
        if stage is Refillable.NO_TARGET:
            hold = self._link.snapshot.hold(topic, target.topic)
            return hold.reason if hold is not None else str(stage)
        shown = f"`trueup describe link {self._link.name}` shows the commands that continue the copy"
        if stage in (Refillable.RESET_FIRST, Refillable.RESTORED, Refillable.RETURNED):
            return f"{stage}; {shown}"
        if stage is Refillable.LEASED and not mine.stopped:
            return f"the link is copying; run `trueup link pause {self._link.name}`"
        if stage in (Refillable.LEASED, Refillable.BACK_LEASED):
            return BUSY
        if stage is Refillable.BACK_COPIED and back is not None:
            why = f"{back.name} has copied from the new topic, so its records cannot be distinguished from lost records"
            return f"{why}; {shown if mine.stopped else 'when that link has no lag, delete the topic at the target'}"
        if mine.stopped and self._watch.replaced:
            return self._watch.replaced
        return LOST[mine.target]
