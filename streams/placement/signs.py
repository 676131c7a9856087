"""The health of ledgers, marks and bookies."""

from collections.abc import Iterator, Mapping
from typing import Any

from trueup.state.placement.readiness import few
from trueup.streams.runtime.format import age, many
from trueup.streams.runtime.signs import Signs, lost

STATUSES = ("writable", "readonly", "pending", "lost")


def signs(status: Mapping[str, Any]) -> Signs:
    """Health from the ledgers in the application's status."""
    late = f", {status['not_judged']:,} not judged yet" if status["not_judged"] else ""
    watched, unbound = status["watches_ledgers"], status["unbound"]
    return Signs(
        well=f"{many(status['counts']['true'], 'ledger')} true{late}" if watched else "",
        blind=list(_blind(status)),
        held=[status["held"], *([unbound] if unbound else [])] if status["held"] else [],
        held_line="Held by Trueup; BookKeeper's Auditor is not bound"
        if unbound
        else "Held: a mass loss waits for an operator",
        attention=[*_ledgers(status), *lost(status["bookies"].get("lost", []), "bookie"), *_damages(status)],
        blinding=["zookeeper"],
        lines=list(_lines(status)) if watched else [],
    )


def _blind(status: Mapping[str, Any]) -> Iterator[str]:
    if status["counts"]["unknown"] == status["ledgers"] > status["not_judged"]:
        yield f"{many(status['ledgers'], 'ledger')} unknown, which is all"


def _ledgers(status: Mapping[str, Any]) -> Iterator[str]:
    counts = status["counts"]
    if count := status["without_copies"]:
        yield f"{many(count, 'ledger')} without a live copy of some entries"
    if counts["drifted"]:
        oldest = status["oldest_drift_ms"]
        yield f"{many(counts['drifted'], 'ledger')} drifted" + (f", the oldest for {age(oldest)}" if oldest else "")
    if counts["blocked"]:
        yield f"{many(counts['blocked'], 'ledger')} blocked: no remedy exists now"
    unknown = counts["unknown"] - status["not_judged"]
    if 0 < unknown < status["ledgers"]:
        yield f"{many(unknown, 'ledger')} unknown: no verdict is possible"
    if not few(status["not_judged"], status["ledgers"]):
        yield f"{status['not_judged']:,} of {many(status['ledgers'], 'ledger')} not judged yet"
    if status["unbound"] and status["mode"] != "observe":
        yield str(status["unbound"])


def _damages(status: Mapping[str, Any]) -> Iterator[str]:
    if count := status["damages"]["confirmed"]:
        yield f"{many(count, 'replica')} missing or damaged on bookies that respond"


def _lines(status: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    counts, marks, bookies = status["counts"], status["marks"], status["bookies"]
    late = f" ({status['not_judged']:,} of them not judged yet)" if status["not_judged"] else ""
    yield "Ledgers", ", ".join(f"{count:,} {verdict}" for verdict, count in counts.items()) + late
    present = [f"{len(bookies[name]):,} {name}" for name in STATUSES if bookies.get(name)]
    yield "Bookies", ", ".join(present) or ("none" if bookies else "not observed yet")
    yield "Auditor", status["unbound"] or "Trueup holds the vote: hold and approve bind BookKeeper"
    yield "Marks", f"{marks['outstanding']:,} outstanding of {marks['cap']:,} at most, {marks['ours']:,} ours"


def trends(status: Mapping[str, Any]) -> Mapping[str, float]:
    """Ledgers that are not true, marks, and lost bookies."""
    wrong = {verdict: status["counts"][verdict] for verdict in ("drifted", "blocked", "unknown")}
    lost = {"lost bookies": len(status["bookies"]["lost"])} if status["bookies"] else {}
    return {**wrong, "marks outstanding": status["marks"]["outstanding"], **lost}
