"""Move plans compared with every possible placement of a few replicas."""

from dataclasses import replace
from itertools import pairwise, product
from random import Random

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from trueup.state.logdirs.model import Broker, LogDir, replicas, skew, used
from trueup.state.logdirs.plan import Balance, fewest_bytes, plan, startable

POLICY = Balance(target=0.1, headroom_share=0.05, headroom_bytes=0, least_bytes=1)


@st.composite
def brokers(draw: st.DrawFn) -> Broker:
    """Up to three directories and five replicas; volumes also contain other data."""
    totals = draw(st.lists(st.integers(100, 400), min_size=2, max_size=3, unique=True))
    rows, left = [], list(totals)
    for number in range(draw(st.integers(0, 5))):
        home = draw(st.integers(0, len(totals) - 1))
        size = draw(st.integers(0, min(60, left[home])))
        left[home] -= size
        rows.append(("t", number, home, size, 0, False))
    usable = [draw(st.integers(free // 2, free)) for free in left]
    dirs = [LogDir(f"/d{at}", total, free) for at, (total, free) in enumerate(zip(totals, usable, strict=True))]
    return Broker(1, tuple(dirs), replicas(rows))


def moved(broker: Broker) -> dict[int, str]:
    return {move.partition: move.target for move in plan(broker, POLICY).moves}


def cheapest(broker: Broker) -> int | None:
    """Bytes of the cheapest placement that reaches the target within the headroom; None if no placement does."""
    rows, best = broker.replicas, None
    after, total = used(broker)
    room = [d.usable - int(d.total * POLICY.headroom_share) for d in broker.dirs]
    for homes in product(range(len(broker.dirs)), repeat=len(rows)):
        goes = [(int(rows.home[row]), home, int(rows.size[row])) for row, home in enumerate(homes)]
        goes = [step for step in goes if step[0] != step[1]]
        changed, arrived = after.copy(), [0] * len(room)
        for source, target, size in goes:
            changed[source] -= size
            changed[target] += size
            arrived[target] += size
        shares = changed / total
        fits = all(come == 0 or come <= left for come, left in zip(arrived, room, strict=True))
        if fits and shares.max() - shares.min() <= POLICY.target + 1e-9:
            size = sum(step[2] for step in goes)
            best = size if best is None else min(best, size)
    return best


SOURCE_BELOW_THE_EMPTIEST = Broker(
    1,
    (LogDir("/d0", 192, 93), LogDir("/d1", 101, 73), LogDir("/d2", 107, 43)),
    replicas([("t", at, home, size, 0, False) for at, (home, size) in enumerate(((2, 21), (0, 16), (2, 2), (1, 8)))]),
)


@example(SOURCE_BELOW_THE_EMPTIEST)
@given(brokers())
def test_a_plan_never_makes_the_skew_worse(broker: Broker) -> None:
    made = plan(broker, POLICY)
    steps = [made.before, *(move.skew for move in made.moves)]
    assert all(later <= sooner + 1e-9 for sooner, later in pairwise(steps))


@given(brokers())
def test_the_skew_that_is_promised_is_the_skew_that_comes(broker: Broker) -> None:
    made, homes = plan(broker, POLICY), broker.replicas.home.copy()
    usable = [d.usable for d in broker.dirs]
    for move in made.moves:
        source, target = broker.place[move.source], broker.place[move.target]
        usable[source] += move.bytes
        usable[target] -= move.bytes
        homes[move.partition] = target
    after = Broker(1, tuple(d._replace(usable=free) for d, free in zip(broker.dirs, usable, strict=True)))
    assert abs(skew(after) - made.after) < 1e-9


@given(brokers())
def test_a_plan_keeps_the_headroom_at_every_moment(broker: Broker) -> None:
    free = {d.path: d.usable for d in broker.dirs}
    for move in plan(broker, POLICY).moves:
        free[move.target] -= move.bytes
        assert free[move.target] >= int(broker.dirs[broker.place[move.target]].total * POLICY.headroom_share)


@given(brokers())
def test_a_plan_that_reaches_the_target_moves_few_bytes(broker: Broker) -> None:
    made, best = plan(broker, POLICY), cheapest(broker)
    givers = {move.source for move in made.moves}
    slack = sum(max(move.bytes for move in made.moves if move.source == path) for path in givers)
    assert made.after > POLICY.target or (best is not None and sum(m.bytes for m in made.moves) <= best + slack)


@given(brokers())
def test_no_placement_is_cheaper_than_the_bound(broker: Broker) -> None:
    after, total = used(broker)
    best = cheapest(broker)
    assert best is None or fewest_bytes(after, total, POLICY.target)[0] <= best + 1e-6


@given(brokers())
def test_a_replica_moves_once(broker: Broker) -> None:
    moves = plan(broker, POLICY).moves
    assert len({move.partition for move in moves}) == len(moves)


@given(brokers(), st.integers(1, 3))
def test_what_starts_together_shares_no_directory(broker: Broker, at_once: int) -> None:
    policy = Balance(0.1, 0.05, 0, 1, at_once)
    started = startable(broker, plan(broker, policy).moves, policy)
    touched = [path for move in started for path in (move.source, move.target)]
    assert len(touched) == len(set(touched))
    assert len(started) <= at_once


def test_a_bound_for_two_equal_volumes_is_half_the_excess() -> None:
    bound, edge = fewest_bytes(np.array([80, 20]), np.array([100, 100]), 0.1)
    assert (round(bound, 6), round(edge, 6)) == (25.0, 0.45)


@given(st.integers(0, 1 << 32), st.sampled_from((0.02, 0.05, 0.1)))
@example(0, 0.02)
def test_first_moves_of_successive_plans_never_return_to_a_placement(seed: int, target: float) -> None:
    """Two disks are equal. While they have nearly equal contents, they count as one volume."""
    chance = Random(seed)
    totals = [2000, 2000, *chance.choices((2000, 3000, 4000), k=chance.choice((1, 1, 2, 3)))]
    shift, base = (0, chance.randint(-25, 25), chance.randint(-300, 300)), chance.randint(300, 700)
    others = [total * (base + chance.choice(shift)) // 2000 for total in totals]
    homes = chance.choices(range(len(totals)), k=chance.choice((1, 2, 3, 6)))
    sizes, placements = [chance.randint(5, 400) for _ in homes], [tuple(homes)]
    while True:
        held = [sum(size for at, size in zip(homes, sizes, strict=True) if at == disk) for disk in range(len(totals))]
        free = [total - other - mine for total, other, mine in zip(totals, others, held, strict=True)]
        dirs = tuple(LogDir(f"/d{at}", total, left) for at, (total, left) in enumerate(zip(totals, free, strict=True)))
        rows = [("t", at, home, size, 0, False) for at, (home, size) in enumerate(zip(homes, sizes, strict=True))]
        moves = plan(Broker(1, dirs, replicas(rows)), replace(POLICY, target=target)).moves
        if not moves:
            return
        homes[moves[0].partition] = int(moves[0].target.removeprefix("/d"))
        assert tuple(homes) not in placements
        placements.append(tuple(homes))
