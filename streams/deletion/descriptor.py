"""The deletion stream in the catalog."""

from typing import TYPE_CHECKING

from trueup.state.deletion.rules import LEAK_RULES
from trueup.streams.runtime.descriptor import Descriptor, Noun

if TYPE_CHECKING:
    from trueup.streams.deletion.stream import DeletionStream
    from trueup.streams.runtime.context import Context


def _make(context: "Context") -> "DeletionStream | None":
    """It deletes ledgers of the cluster that the placement stream watches."""
    from trueup.streams.deletion.stream import DeletionStream
    from trueup.streams.placement.stream import PlacementStream

    ledgers = context.streams.get("placement")
    if not isinstance(ledgers, PlacementStream) or context.settings.deletion.owners == "none":
        return None
    return DeletionStream(context, ledgers)


DELETION = Descriptor(
    name="deletion", rules=LEAK_RULES, told=True, make=_make, absent=lambda _: {"deletion": None},
    lists=(Noun("unreferenced", 100), Noun("markers")),
)  # fmt: skip
