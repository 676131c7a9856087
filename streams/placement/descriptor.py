"""The placement stream in the catalog."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trueup.state.placement.rules import RULES
from trueup.state.settings.settings import Settings
from trueup.streams.runtime.descriptor import Descriptor, Noun, Thing

if TYPE_CHECKING:
    from trueup.streams.placement.stream import PlacementStream
    from trueup.streams.runtime.context import Context


def _make(context: "Context") -> "PlacementStream | None":
    from trueup.streams.placement.stream import PlacementStream

    return PlacementStream(context) if context.settings.cluster.zookeeper else None


def _absent(settings: Settings) -> Mapping[str, Any]:
    return {
        "watches_ledgers": False, "mode": settings.placement.mode, "paused": settings.placement.paused,
        "counts": {"true": 0, "drifted": 0, "blocked": 0, "unknown": 0}, "not_judged": 0, "ledgers": 0,
        "oldest_drift_ms": None, "waiting": {}, "marks": {"outstanding": 0, "ours": 0, "cap": 0, "idle_ms": 0},
        "held": "", "unbound": "", "bookies": {},
    }  # fmt: skip


PLACEMENT = Descriptor(
    name="placement", rules=RULES, told=True, make=_make, absent=_absent, todo="set cluster.zookeeper",
    lists=(Noun("ledgers", 100, {"all": ("true", "false")}), Noun("bookies"), Noun("marks")),
    things=(Thing("ledger", "ledgers/<ledger>", ids=("ledger",)),),
)  # fmt: skip
