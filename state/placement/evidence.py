"""The evidence that `trueup describe ledger` shows of a fragment: windows, certainty of a repair, possible changes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from trueup.state.common.counts import many
from trueup.state.common.rules import Verdict
from trueup.state.placement.policy import fragments as rule
from trueup.state.placement.policy.bookie_classes import BookieClass, depth
from trueup.state.placement.policy.fragments import ABSENT, DEAD, KNOWN, FragmentFacts, FragmentJudge, FragmentStage
from trueup.state.placement.policy.replacement import DEFAULT_RACK, Certainty, Rack, RepairReach, windows
from trueup.state.placement.rules import RULES

NEW_RACK = "/a-rack-of-its-own"
MOST_NAMED = 3
_STATUS = {
    BookieClass.WRITABLE: "writable",
    BookieClass.READONLY: "read-only",
    BookieClass.ODD: "writable",
    BookieClass.PENDING_WRITABLE: "pending",
    BookieClass.PENDING_READONLY: "pending",
    BookieClass.PENDING_ODD: "pending",
    BookieClass.LOST: "lost",
    BookieClass.UNPLACED: "writable",
    BookieClass.UNKNOWN: "never seen",
}


@dataclass(frozen=True, slots=True, eq=False)
class EvidenceFinding:
    """One fragment with its result."""

    rule: int
    stage: FragmentStage
    bookies: list[str]
    facts: FragmentFacts
    refusing: tuple[str, ...]
    """The bookies outside the ensemble that may refuse the ledger."""
    excluded: dict[Rack, int]


def members(bench: FragmentJudge, names: list[str]) -> list[dict[str, Any]]:
    """Members in ring order: bookie, rack, status, whether BookKeeper's rule counts its rack, isolation groups."""
    classes = bench.bookie_classes
    codes, groups = bench.classes(tuple(names)), {bookie.id: bookie.groups for bookie in bench.topology.bookies}
    return [
        {
            "bookie": name,
            "rack": classes.racks[classes.rack[at]] if classes.kind[at] != BookieClass.UNKNOWN else "",
            "status": _STATUS[BookieClass(int(classes.kind[at]))],
            "counts": bool(KNOWN[classes.kind[at]]),
            "groups": list(groups.get(name) or ()),
        }
        for name, at in zip(names, codes.tolist(), strict=True)
    ]


def shown(bench: FragmentJudge, finding: EvidenceFinding, quorum: int, acks: int) -> dict[str, Any]:
    """One fragment of a ledger with these Qw and Qa."""
    what = RULES[finding.rule]
    return {
        "bookies": members(bench, finding.bookies),
        "rule": what.id,
        "verdict": bench.verdict_of(finding.rule),
        "copies": quorum if finding.stage is FragmentStage.EMPTY else int(finding.facts.copies[0]),
        "racks": int(finding.facts.racks[0]),
        "empty": finding.stage is FragmentStage.EMPTY,
        "failing_windows": list(_failing(bench, finding, quorum)),
        "broken": _broken(bench, finding, quorum, acks),
        "repair": _chance(bench, finding, quorum),
        "refusing": list(finding.refusing),
    }


def unjudged(bench: FragmentJudge, names: list[str], code: int) -> dict[str, Any]:
    """One fragment of a deleted or unreadable ledger, in the same form."""
    nothing = {
        "copies": 0,
        "racks": 0,
        "empty": False,
        "failing_windows": [],
        "broken": [],
        "repair": "",
        "refusing": [],
    }
    what = RULES[code]
    return {"bookies": members(bench, names), "rule": what.id, "verdict": what.verdict.name.lower(), **nothing}


def _broken(bench: FragmentJudge, finding: EvidenceFinding, quorum: int, acks: int) -> list[str]:
    """The conditions of regions or zones that the fragment breaks."""
    if bench.places is None:
        return []
    facts = finding.facts
    return bench.places.broken(facts.names, KNOWN[facts.kinds], quorum, acks)


def _failing(bench: FragmentJudge, finding: EvidenceFinding, quorum: int) -> Iterator[dict[str, Any]]:
    kinds, racks = finding.facts.kinds[0], finding.facts.names[0]
    need, names = 0 if bench.places else min(quorum, bench.topology.min_racks), bench.bookie_classes.racks
    for window in windows(len(kinds), quorum):
        at = list(window)
        given = sorted({names[rack] for rack in racks[at][KNOWN[kinds[at]]].tolist()})
        copies = int((~DEAD[kinds[at]]).sum())
        forbidden = not bench.places and bench.topology.enforce_min_racks and DEFAULT_RACK in given
        if copies < quorum or len(given) < need or forbidden:
            yield {"bookies": [finding.bookies[i] for i in at], "racks": given, "copies": copies}


def _chance(bench: FragmentJudge, finding: EvidenceFinding, quorum: int) -> str:
    """How certain a repair by a worker is; empty if no repair is necessary or possible."""
    if finding.rule == rule.LOST:
        chance = bench.refill(finding.facts, 0, finding.excluded)
    elif finding.rule in (rule.RACKS, rule.READONLY, rule.DEFAULT, rule.NO_WALK):
        chance = bench.reach(finding.facts, 0, quorum, finding.excluded)
    else:
        return ""
    if chance.sure is Certainty.NEVER:
        return "no repair found before the search limit" if chance.cut else "BookKeeper cannot repair the fragment"
    replicas = f"{chance.moves} {'replica' if chance.moves == 1 else 'replicas'}"
    if chance.sure is Certainty.ALWAYS:
        return f"every attempt succeeds and moves at least {replicas}"
    return f"depends on BookKeeper's random choices: some attempts succeed, with at least {replicas} moved"


def changes(bench: FragmentJudge, finding: EvidenceFinding, quorum: int) -> list[str]:
    """What would change the verdict of this fragment, the most specific first."""
    what = RULES[finding.rule]
    if what.verdict is Verdict.TRUE:
        return []
    say = _SAYS.get(finding.rule)
    return [*(say(bench, finding, quorum) if say else ()), what.remedy]


def _away(finding: EvidenceFinding) -> list[str]:
    gone = np.flatnonzero(DEAD[finding.facts.kinds[0]] | ABSENT[finding.facts.kinds[0]])
    return [finding.bookies[at] for at in gone.tolist()]


def _returns(_: FragmentJudge, finding: EvidenceFinding, __: int) -> list[str]:
    return [f"the return of {' or '.join(_away(finding))}"]


def _unwritable(_: FragmentJudge, finding: EvidenceFinding, __: int) -> list[str]:
    names = [finding.bookies[at] for at in np.flatnonzero(finding.facts.kinds[0] == BookieClass.READONLY).tolist()]
    return [f"{' or '.join(names)} becoming writable again"]


def _kept(bench: FragmentJudge, finding: EvidenceFinding, _: int) -> list[str]:
    names = [name for name in finding.bookies if name in bench.topology.policy.drain]
    return [f"`trueup undrain {' '.join(names)}`"]


def _unmapped(bench: FragmentJudge, finding: EvidenceFinding, _: int) -> list[str]:
    here = (finding.facts.names[0] == bench.bookie_classes.default) & KNOWN[finding.facts.kinds[0]]
    names = [finding.bookies[at] for at in np.flatnonzero(here).tolist()]
    return [f"a rack for {' and '.join(names)} in the rack map"]


def _deep(bench: FragmentJudge, finding: EvidenceFinding, _: int) -> list[str]:
    classes = bench.bookie_classes
    odd = [bookie for bookie in finding.bookies if classes.kind[classes.of.get(bookie, -1)] == BookieClass.ODD]
    # Bookies outside the ensemble also matter: any of them may have joined first.
    odd = odd or [bookie for bookie, at in classes.of.items() if classes.kind[at] == BookieClass.ODD]
    places = [(bookie, classes.racks[classes.rack[classes.of[bookie]]]) for bookie in odd[:MOST_NAMED]]
    more = [f"the same for {many(len(odd) - MOST_NAMED, 'more bookie')}"] if len(odd) > MOST_NAMED else []
    return [
        *(
            f"a rack of depth {classes.depth} for {bookie}, which is in {rack} of depth {depth(rack)}"
            for bookie, rack in places
        ),
        *more,
    ]


def _unseen(_: FragmentJudge, finding: EvidenceFinding, __: int) -> list[str]:
    names = [finding.bookies[at] for at in np.flatnonzero(finding.facts.kinds[0] == BookieClass.UNKNOWN).tolist()]
    return [f"a cookie or a registration of {' and '.join(names)}"]


def _refused(_: FragmentJudge, finding: EvidenceFinding, __: int) -> list[str]:
    names = " or ".join(finding.refusing)
    restart = f"a restart of {names}, then an increase of placement.restarted by one (a restart cannot be observed)"
    return [restart, "a writable bookie that never held the ledger"]


def _more_for_loss(bench: FragmentJudge, finding: EvidenceFinding, quorum: int) -> list[str]:
    more = _more(bench, finding, lambda more: bench.refill(finding.facts, 0, {}, more))
    return [*_returns(bench, finding, quorum), *more]


def _more_for_racks(bench: FragmentJudge, finding: EvidenceFinding, quorum: int) -> list[str]:
    more = _more(bench, finding, lambda more: bench.reach(finding.facts, 0, quorum, {}, more))
    return more or ["no tried number of bookies lets BookKeeper reach an ensemble that adheres; rewrite the ledger"]


def _more(
    bench: FragmentJudge, finding: EvidenceFinding, try_it: Callable[[dict[Rack, int]], RepairReach]
) -> list[str]:
    """The smallest number of additional writable bookies in one rack that permits a repair, for each such rack."""
    out: list[str] = []
    for rack in [NEW_RACK, *bench.bookie_classes.racks_in_use]:
        for count in range(1, len(finding.bookies) + 1):
            if try_it({rack: count}):
                where = "a new rack" if rack == NEW_RACK else rack
                out.append(f"{count} more writable {'bookie' if count == 1 else 'bookies'} in {where}")
                break
    return out


_SAYS: dict[int, Callable[[FragmentJudge, EvidenceFinding, int], list[str]]] = {
    rule.LOST: _returns,
    rule.ALL_LOST: _returns,
    rule.PENDING: _returns,
    rule.WRITER: _returns,
    rule.OLDER: _returns,
    rule.READONLY: _unwritable,
    rule.DEFAULT: _unmapped,
    rule.DEPTH: _deep,
    rule.UNKNOWN_BOOKIE: _unseen,
    rule.REFUSED: _refused,
    rule.NO_BOOKIES: _more_for_loss,
    rule.NO_WALK: _more_for_racks,
    rule.CANNOT: _more_for_racks,
    rule.DRAINING: _kept,
    rule.OPEN_DRAINING: _kept,
}
