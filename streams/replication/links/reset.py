"""Resets of partitions to other source offsets, as an operator decides."""

from collections.abc import Iterable, Sequence

from trueup.connectors.contract import LogId
from trueup.state.common.errors import Refused
from trueup.state.replication.recovery import may_reset
from trueup.streams.replication.links.monitor import LinkMonitor
from trueup.streams.replication.links.standing import Standings, back_of
from trueup.streams.rows import Row


class Resetting:
    """Resets of one link. ``partitions``: the names of source partitions, or None for all partitions that the link
    copies; ``to``: the new position, which is earliest, latest or an offset."""

    def __init__(self, watch: LinkMonitor, partitions: Sequence[str] | None, to: str) -> None:
        self._watch, self._link, self._to = watch, watch.link, to
        self._named = partitions

    def rows(self) -> list[Row]:
        """One row per partition: where it would continue (-1: nowhere, with the reason), and where it is now. The
        position of a partition that its recreated topic does not have is forgotten. Raises `Refused`."""
        for watch in (self._watch, *self._watch.backwards()):
            watch.look()  # the copies continue between the topics that exist at this moment
        logs = self._chosen()
        self._check(logs)
        gone = {log: why for log in logs if (why := self._gone(log))}
        offsets = self._watch.sides.offset(self._to, [log for log in logs if log not in gone])
        if logs and not offsets and not any(map(self._vanished, gone)):
            missing = f"none of {', '.join(map(str, logs[:3]))}" + (", ..." if len(logs) > 3 else "")
            raise Refused(f"partitions that {self._link.declared.source} has", missing, self._look)
        return [self._row(log, offsets.get(log, -1), gone.get(log, "")) for log in sorted(logs)]

    def begin(self) -> list[Row]:
        """Set the offsets. Returns `rows`. Raises `Refused`."""
        rows = self.rows()
        by_name = {str(log): log for log in self._link.copies}
        offsets = {by_name[row["partition"]]: row["offset"] for row in rows if row["offset"] >= 0}
        without = [by_name[row["partition"]] for row in rows if row["offset"] < 0]
        vanished = [log for log in without if self._vanished(log)]
        if offsets or vanished:
            self._link.reset(offsets, self._to, vanished)
            self._watch.forget([*offsets, *vanished])
            self._watch.accept_target()
            texts = [f"{log} to {offset}" for log, offset in offsets.items()] + [f"{log} forgotten" for log in vanished]
            self._watch.note(self._link.name, "reset", "set", ", ".join(texts))
        return rows

    @property
    def _look(self) -> str:
        return f"see `trueup describe link {self._link.name}`"

    def _chosen(self) -> list[LogId]:
        with self._link.lock:
            by_name = {str(copy.source): copy.source for copy in self._link.current()}
        if unknown := [text for text in self._named or () if text not in by_name]:
            raise Refused("partitions that the link copies", ", ".join(unknown), self._look)
        return [by_name[text] for text in (by_name if self._named is None else self._named)]

    def _check(self, logs: Iterable[LogId]) -> None:
        """Raise `Refused` while an opposite link can restore what the source lost."""
        standings = Standings(self._watch)
        for log in logs:
            if (back := back_of(self._watch, log)) is None:
                continue
            if not may_reset(standings.of(log), standings.opposite(back), self._to):
                other = back.watch.link.name
                raise Refused(
                    f"a decision about the records of {log} that {self._link.declared.source} lost",
                    "none",
                    f"`trueup link refill {other} --yes` restores them and restarts this link, "
                    f"`trueup link reset {other} --partition {back.source} --to latest --yes` skips them",
                )

    def _gone(self, log: LogId) -> str:
        """Why the source does not have a partition; empty if it does, or if that is not known."""
        if log.topic not in self._link.snapshot.facts.source.topics:
            return f"{self._link.declared.source} does not have the topic"
        if not self._vanished(log):
            return ""
        source = self._link.declared.source
        if self._link.snapshot.facts.source.ids.get(log.topic):
            return f"the recreated topic at {source} does not have it; its position is forgotten"
        return f"{source} does not show it; its position is forgotten, and it begins anew if it returns"

    def _vanished(self, log: LogId) -> bool:
        """Whether the topic of a partition was recreated with fewer partitions. Without ids, the partition may be at a
        broker that does not respond: only an operator who names it can tell."""
        facts, copy = self._link.snapshot.facts.source, self._link.copies[log]
        if not facts.lacks(log):
            return False
        if topic_id := facts.ids.get(log.topic):
            return copy.source_id != topic_id
        return not copy.source_id and str(log) in (self._named or ())

    def _row(self, log: LogId, offset: int, gone: str) -> Row:
        return {
            "partition": str(log),
            "offset": offset,
            "was": self._link.copies[log].offset,
            "reason": "" if offset >= 0 else gone or "its offsets are not known",
            "gone": bool(gone),
        }
