"""The ledger and bookie sections of the status page."""

from itertools import groupby

from trueup.streams.rows import Row
from trueup.streams.runtime.descriptor import PageSection

CHIPS, CHIPS_OF_MANY = 12, 4


def racks(bookies: list[Row]) -> list[Row]:
    """Bookies by rack, those that are not writable first: rack, counts by status, rows shown, number of others."""
    order = {"lost": 0, "pending": 1, "readonly": 2, "writable": 3}
    rows = sorted(bookies, key=lambda b: (b["rack"] or "", order.get(b["status"], 0), b["bookie"]))
    by_rack = []
    for rack, group in groupby(rows, key=lambda b: b["rack"] or ""):
        members = list(group)
        writable = [b for b in members if b["status"] == "writable"]
        few = writable if len(writable) <= CHIPS else writable[:CHIPS_OF_MANY]
        shown = [b for b in members if b["status"] != "writable"] + few
        counts = {status: sum(b["status"] == status for b in members) for status in reversed(order)}
        by_rack.append(
            {
                "rack": rack or "unknown rack (/default-rack)",
                "shown": shown,
                "left": len(members) - len(shown),
                "counts": {status: count for status, count in counts.items() if count},
            }
        )
    return by_rack


PAGE = (
    PageSection("counts", "placement/templates/counts.html", card=lambda _: False),
    PageSection("bookies", "placement/templates/bookies.html", beside=True, noun="bookies", shape=racks),
)
