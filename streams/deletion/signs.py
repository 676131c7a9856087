"""The field of deletions in the status, and the health that it shows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trueup.state.common.counts import many
from trueup.streams.runtime.fields import StatusFields
from trueup.streams.runtime.format import size
from trueup.streams.runtime.signs import Signs


@dataclass(frozen=True, slots=True)
class UnreferencedLedgers:
    """The unreferenced ledgers of one namespace and rule."""

    namespace: str
    rule: str
    ledgers: int
    bytes: int


@dataclass(frozen=True, slots=True)
class DeletionStatus:
    """Unreferenced ledgers and their deletions."""

    mode: str
    paused: bool
    unreferenced: int
    bytes: int
    forgotten: Sequence[UnreferencedLedgers]
    deletions: Mapping[str, int]
    """Deletions in progress, by stage."""
    complete: bool
    """Whether the query has read the journal."""
    oldest_ms: int | None
    """The age of the oldest deletion; None if there is none."""
    executing_ms: int | None
    """The longest time for which a deletion has been executed without an end; None if none is executed."""


@dataclass(frozen=True, slots=True)
class DeletionFields(StatusFields):
    """The deletion stream in the status."""

    deletion: DeletionStatus | None = None
    """None if the stream does not run."""

    def signs(self) -> Signs:
        """The health of deletions."""
        if (deletion := self.deletion) is None:
            return Signs()
        text = f"{many(deletion.unreferenced, 'unreferenced ledger')}, {size(deletion.bytes)}, mode {deletion.mode}"
        stages = ", ".join(f"{count:,} {stage}" for stage, count in deletion.deletions.items() if count)
        paused = ", paused" if deletion.paused else ""
        return Signs(blinding=["owners"], lines=[("Deletion", text + paused + (f"; {stages}" if stages else ""))])

    def trends(self) -> Mapping[str, float]:
        """Unreferenced ledgers, their bytes, and deletions in progress."""
        deletion = self.deletion
        return {
            "unreferenced": deletion.unreferenced if deletion else 0,
            "unreferenced bytes": deletion.bytes if deletion else 0,
            "deletions in progress": sum(deletion.deletions.values()) if deletion else 0,
        }
