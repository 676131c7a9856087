"""Verdicts on ledgers: which are placed correctly, and what can be done about the others.

The verdict of a ledger is that of its worst fragment in the order of `ORDER`. Loss of data ranks before racks. Within
both groups, fragments that a mark would repair rank before those that nothing repairs: a worker repairs each fragment
separately, and the verdict then changes to the rest. `state.placement.policy.fragments` has the rules of one fragment.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trueup.state.bookkeeper.ledgers import Column, Ledgers
from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.bookkeeper.topology import Topology
from trueup.state.common.rules import Verdict
from trueup.state.placement.evidence import EvidenceFinding, changes, shown, unjudged
from trueup.state.placement.isolation import IsolationJudge
from trueup.state.placement.policy.fencing import NO_FORMER, FormerMembers
from trueup.state.placement.policy.fragments import (
    GONE,
    UNREADABLE,
    VERDICTS,
    FragmentJudge,
    FragmentStage,
    plain,
    stages,
)
from trueup.state.placement.rules import RULES

__all__ = ["NO_FORMER", "ORDER", "FormerMembers", "Verdicts", "evidence", "judge", "order", "unregistered"]

ORDER = (
    "placement.unreadable",
    "placement.unknown-bookie",
    "placement.unknown-isolation-group",
    "placement.leaves-isolation-group",
    "placement.lost-member",
    "placement.all-copies-lost",
    "placement.too-few-bookies",
    "placement.pending-member",
    "placement.too-few-racks",
    "placement.read-only-member",
    "placement.default-rack",
    "placement.too-few-regions",
    "placement.too-few-zones",
    "placement.refused-by-target",
    "placement.odd-rack-depth",
    "placement.no-walk",
    "placement.draining-member",
    "placement.cannot-adhere",
    "placement.unknown-rack",
    "placement.open-waits-for-writer",
    "placement.open-older-fragment",
    "placement.open-draining-member",
    "placement.open-not-adhering",
    "placement.outside-isolation-group",
    "placement.open",
    "placement.adheres-softly",
    "placement.adheres",
    "placement.gone",
)
"""Rules of placement, worst first."""

_RANK = np.zeros(len(RULES), np.int64)
_RANK[[RULES.code(rule) for rule in ORDER]] = np.arange(len(ORDER), 0, -1)
_CHUNK = 1 << 20  # members judged at a time


@dataclass(frozen=True, slots=True, eq=False)
class Verdicts:
    """One verdict per row, in the order of the rows."""

    verdict: Column
    """uint8: the `Verdict`."""
    rule: Column
    """uint8: the code of the rule in `RULES`."""
    copies: Column
    """uint16: the fewest live replicas of any entry; Qw if there are no entries, 0 for rows without readable members
    (gone, unreadable)."""
    racks: Column
    """uint16: the fewest racks in any window of any fragment, as BookKeeper counts them; 0 for rows without readable
    members."""
    fragment: Column
    """uint32: the index of the worst fragment; the first of several."""
    held: Column
    """bool: whether any fragment names a bookie of the mass loss that is held. Such a ledger is not marked."""

    def __len__(self) -> int:
        return len(self.rule)


def judge(ledgers: Ledgers, topology: Topology, former: FormerMembers = NO_FORMER) -> Verdicts:
    """Judge every row; ``ledgers`` holds one row per ledger, in any order."""
    size, bench = len(ledgers), FragmentJudge(topology)
    rule = np.where(ledgers.state == LedgerState.GONE, GONE, UNREADABLE).astype(np.uint8)
    copies, racks = np.zeros(size, np.uint16), np.zeros(size, np.uint16)
    fragment = np.zeros(size, np.uint32)
    classes = bench.classes(ledgers.names)
    for rows, ring, quorum, acks in _shapes(ledgers, bench.places is not None):
        if rows is None:
            for part in _slices(size, ring):
                rings = classes[ledgers.members[part.start * ring : part.stop * ring]].reshape(-1, ring)
                stage = stages(ledgers.state[part], ledgers.entries[part], ring)
                rule[part], counts, racks[part] = bench.judge(rings, stage, quorum, acks)
                copies[part] = np.minimum(counts, quorum)
        else:
            for piece in _pieces(ledgers, rows, ring):
                several = _several(bench, ledgers, piece, classes, ring, quorum, acks)
                rule[piece], copies[piece], racks[piece], fragment[piece] = several
    for row in _remembered(ledgers, former, rule):
        rule[row], fragment[row] = _again(bench, ledgers, row, former)
    IsolationJudge(ledgers, bench).apply(rule, fragment)
    return Verdicts(bench.verdicts[rule], rule, copies, racks, fragment, _held(ledgers, bench))


def _held(ledgers: Ledgers, bench: FragmentJudge) -> Column:
    """Whether each row names a bookie of the mass loss that is held: bool."""
    if not bench.topology.held:
        return np.zeros(len(ledgers), bool)
    return ledgers.having(bench.bookie_classes.held[bench.bookie_classes.classes(ledgers.names)])


def order(verdicts: Verdicts, ledgers: Ledgers, limit: int | None = None) -> Column:
    """Positions of the drifted rows in order of risk, at most ``limit``.

    The order is: fewest live replicas, fewest racks, oldest, smallest id.
    """
    rows = np.flatnonzero(verdicts.verdict == Verdict.DRIFTED)
    risk = verdicts.copies[rows].astype(np.uint32) << 16 | verdicts.racks[rows]
    if limit is not None and 0 < limit < len(rows):
        worst = risk <= np.partition(risk, limit - 1)[limit - 1]
        rows, risk = rows[worst], risk[worst]
    rows = rows[np.lexsort((ledgers.ledger[rows], ledgers.ctime_ms[rows], risk))]
    return rows if limit is None else rows[:limit]


def unregistered(ledgers: Ledgers, topology: Topology) -> tuple[str, ...]:
    """Bookies named by ledgers that exist but absent from the topology, ordered by name."""
    bookies = {bookie.id for bookie in topology.bookies}
    odd = np.array([name not in bookies for name in ledgers.names], bool)
    if not odd.any():
        return ()
    live = ledgers.take(ledgers.state != LedgerState.GONE)
    used = np.unique(live.members[odd[live.members]])
    return tuple(sorted(live.names[code] for code in used.tolist()))


def _shapes(ledgers: Ledgers, by_acks: bool) -> Iterator[tuple[Column | None, int, int, int]]:
    """(rows, E, Qw, Qa) of the rows that have members to judge; rows None: all of them, one fragment each.
    ``by_acks``: whether Qa matters; otherwise it is 0."""
    if not len(ledgers):
        return
    size, quorum = ledgers.ensemble, ledgers.quorum
    live = np.isin(np.arange(0x100), [LedgerState.OPEN, LedgerState.IN_RECOVERY, LedgerState.CLOSED])
    good = live[ledgers.state] & (quorum > 0) & (quorum <= size) & (ledgers.fragments > 0)
    acks = ledgers.acks.astype(np.int64) * by_acks
    shape = size.astype(np.int64) << 32 | quorum.astype(np.int64) << 16 | acks
    if good.all() and (shape == shape[0]).all() and (ledgers.fragments == 1).all():
        yield None, int(size[0]), int(quorum[0]), int(acks[0])
        return
    rows = np.flatnonzero(good)
    for code in np.unique(shape[rows]).tolist():
        yield rows[shape[rows] == code], code >> 32, code >> 16 & 0xFFFF, code & 0xFFFF


def _slices(size: int, ring: int) -> Iterator[slice]:
    step = max(1, _CHUNK // ring)
    return (slice(start, min(start + step, size)) for start in range(0, size, step))


def _pieces(ledgers: Ledgers, rows: Column, ring: int) -> Iterator[Column]:
    """Rows in pieces of about `_CHUNK` members."""
    ends = np.cumsum(ledgers.fragments[rows].astype(np.int64) * ring)
    at = 0
    while at < len(rows):
        done = int(ends[at - 1]) if at else 0
        until = max(at + 1, int(np.searchsorted(ends, done + _CHUNK, "right")))
        yield rows[at:until]
        at = until


def _several(
    bench: FragmentJudge, ledgers: Ledgers, rows: Column, classes: Column, size: int, quorum: int, acks: int
) -> tuple[Column, Column, Column, Column]:
    """(rule, copies, racks, fragment) of rows of any number of fragments."""
    count = ledgers.fragments[rows].astype(np.int64)
    first = np.cumsum(count) - count
    row = np.repeat(np.arange(len(count)), count)
    index = np.arange(len(row)) - first[row]
    begin = ledgers.starts[rows][row] + index * size
    rings = classes[ledgers.members[begin[:, None] + np.arange(size)]]
    stage = stages(ledgers.state[rows][row], ledgers.entries[rows][row], size, index == count[row] - 1)
    rule, copies, racks = bench.judge(rings, stage, quorum, acks)
    worst = np.maximum.reduceat(_RANK[rule] << 32 | (0xFFFFFFFF - index), first)
    which = 0xFFFFFFFF - (worst & 0xFFFFFFFF)
    return (
        rule[first + which],
        np.minimum(np.minimum.reduceat(copies, first), quorum),
        np.minimum.reduceat(racks, first),
        which.astype(np.uint32),
    )


def _remembered(ledgers: Ledgers, former: FormerMembers, rule: Column) -> list[int]:
    """Rows that would be repaired, and that a bookie may refuse."""
    if not len(former):
        return []
    rows = np.flatnonzero(VERDICTS[rule] == Verdict.DRIFTED)
    remembered: list[int] = rows[np.isin(ledgers.ledger[rows], former.ledger)].tolist()
    return remembered


def _again(bench: FragmentJudge, ledgers: Ledgers, row: int, former: FormerMembers) -> tuple[int, int]:
    """(rule, fragment) of one row that some of its targets may refuse."""
    findings = _fragments(bench, ledgers, row, former)
    worst = _worst(findings)
    return findings[worst].rule, worst


def _fragments(bench: FragmentJudge, ledgers: Ledgers, row: int, former: FormerMembers) -> list[EvidenceFinding]:
    """Every fragment of one row, judged separately."""
    ensembles, quorum, acks = ledgers.ensembles(row), int(ledgers.quorum[row]), int(ledgers.acks[row])
    excluded, out = former.of(int(ledgers.ledger[row])), []
    for at, bookies in enumerate(ensembles):
        ring = bench.classes(tuple(bookies))[None]
        tail = np.array([at == len(ensembles) - 1])
        stage = stages(ledgers.state[row : row + 1], ledgers.entries[row : row + 1], len(bookies), tail)
        refusing = bench.targets(excluded - set(bookies))
        racks = Counter(rack for _, rack in refusing)
        rule, _, _ = bench.judge(ring, stage, quorum, acks, racks)
        out.append(
            EvidenceFinding(
                int(rule[0]),
                FragmentStage(int(plain(stage)[0])),
                bookies,
                bench.facts(ring, quorum, stage, acks),
                tuple(bookie for bookie, _ in refusing),
                racks,
            )
        )
    return out


def _worst(findings: Sequence[EvidenceFinding]) -> int:
    return max(range(len(findings)), key=lambda at: (_RANK[findings[at].rule], -at))


def evidence(ledgers: Ledgers, row: int, topology: Topology, former: FormerMembers = NO_FORMER) -> dict[str, Any]:
    """The reasons for the verdict on one row, and what would change it, as values that JSON supports.

    ``fragments``: the bookies of each fragment (rack, status, whether BookKeeper counts the rack), its rule, copies,
    racks and failing windows, and the certainty of a repair. ``held``: whether the ledger names a bookie of a mass loss
    that is held. ``isolation``: the groups of the ledger, and its members outside them. ``changes``: sentences.
    """
    bench = FragmentJudge(topology)
    if not list(_shapes(ledgers.take(np.array([row])), False)):
        rule = GONE if ledgers.state[row] == LedgerState.GONE else UNREADABLE
        plain = [unjudged(bench, bookies, rule) for bookies in ledgers.ensembles(row)]
        return {
            "rule": RULES[rule].id,
            "verdict": bench.verdict_of(rule),
            "fragments": plain,
            "held": False,
            "isolation": None,
            "changes": [RULES[rule].remedy],
        }
    findings = list(_fragments(bench, ledgers, row, former))
    quorum = int(ledgers.quorum[row])
    alone = ledgers.take(np.array([row]))
    rules, places = np.array([findings[_worst(findings)].rule]), np.array([_worst(findings)])
    isolation = IsolationJudge(alone, bench)
    isolation.apply(rules, places)
    worst = int(places[0])
    findings[worst] = replace(findings[worst], rule=int(rules[0]))
    held = bool(_held(alone, bench)[0])
    return {
        "rule": RULES[findings[worst].rule].id,
        "verdict": bench.verdict_of(findings[worst].rule),
        "fragment": worst,
        "held": held,
        "needed_racks": min(quorum, topology.min_racks),
        "isolation": isolation.evidence(),
        "fragments": [shown(bench, finding, quorum, int(ledgers.acks[row])) for finding in findings],
        "changes": [
            *([f"repairs are held: {topology.held}"] if held else []),
            *isolation.changes(int(rules[0])),
            *changes(bench, findings[worst], quorum),
        ],
    }
