"""From every state of a partition and its opposite copy, a command that is shown leads out."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from trueup.state.replication.recovery import (
    LATEST,
    WAYS,
    WILL_BE,
    LogIdentity,
    Pair,
    PartitionStanding,
    Refillable,
    may_reset,
    refillable,
    restores,
    ways,
)

FLAGS = (False, True)


def observed(one: PartitionStanding) -> PartitionStanding:
    """A copy after the monitor has seen its ends (`state.replication.anomalies`)."""
    wrong = one.source in (LogIdentity.OTHER, LogIdentity.SHORT) or one.target is not LogIdentity.SAME
    wrong |= not one.placed
    return replace(one, stopped=one.stopped or (wrong and one.source is not LogIdentity.GONE))


UNCOMPARED = (LogIdentity.SAME, LogIdentity.GONE)
"""What is seen of a log without a position in it."""


def displaced(one: PartitionStanding) -> Iterator[PartitionStanding]:
    """The state, those in which other links refilled the target or copied from it, and the one in which the position of
    its copy is not known, where neither end was compared with it: of a replaced cluster, the target is another log
    anyway."""
    yield one
    if one.lost:
        yield from (replace(one, restored=True), replace(one, returned=True))
    if one.source in UNCOMPARED and one.target in (*UNCOMPARED, LogIdentity.OTHER) and not one.refilling:
        yield replace(one, placed=False)


def pairs() -> Iterator[Pair]:
    """All states of a partition, alone and with every state of the opposite copy between the same two logs, each with
    and without a known position of either copy."""
    for mine, back in compared_pairs():
        for one in displaced(mine):
            for other in displaced(back) if back is not None else [None]:
                yield observed(one), observed(other) if other is not None else None


def compared_pairs() -> Iterator[Pair]:
    """The states in which both positions are known, as they are before the monitor looks."""
    for source, target, here, there, mine in product(LogIdentity, LogIdentity, FLAGS, FLAGS, product(FLAGS, repeat=3)):
        stopped, refilling, begun = mine
        one = PartitionStanding(
            source,
            target,
            here and source is not LogIdentity.GONE,
            target is not LogIdentity.GONE and not there,
            target is not LogIdentity.GONE,
            stopped,
            False,
            refilling,
            begun,
        )
        yield one, None
        for to, back, (also, begins) in product(LogIdentity, LogIdentity, product(FLAGS, repeat=2)):
            # Both ends exist for both links, or for neither.
            if (to is LogIdentity.GONE) == (target is LogIdentity.GONE) and (back is LogIdentity.GONE) == (
                source is LogIdentity.GONE
            ):
                other = PartitionStanding(
                    to,
                    back,
                    there and to is not LogIdentity.GONE,
                    back is not LogIdentity.GONE and not here,
                    back is not LogIdentity.GONE,
                    also,
                    begun=begins,
                )
                yield one, other


STATES = list(dict.fromkeys(pairs()))


def followers(pair: Pair) -> list[Pair]:
    """The states after each command for either copy, as the monitor sees them then."""
    mine, back = pair
    found = [way.leads(mine, back) for way in ways(mine, back)]
    if back is not None:
        found += [(b, a) for a, b in (way.leads(back, mine) for way in ways(back, mine)) if b is not None]
    return [(observed(a), observed(b) if b is not None else None) for a, b in found]


def copied(pair: Pair) -> bool:
    """Whether both copies continue."""
    return all(one is None or (not one.stopped and one.source is one.target is LogIdentity.SAME) for one in pair)


def settled() -> set[Pair]:
    """The states from which commands lead to one in which both copies continue."""
    before: dict[Pair, set[Pair]] = {}
    seen, todo = set(STATES), list(STATES)
    while todo:
        pair = todo.pop()
        for after in followers(pair):
            before.setdefault(after, set()).add(pair)
            if after not in seen:
                seen.add(after)
                todo.append(after)
    out, todo = set(), [pair for pair in seen if copied(pair)]
    while todo:
        pair = todo.pop()
        if pair not in out:
            out.add(pair)
            todo += before.get(pair, ())
    return out


def test_commands_lead_out_of_every_state() -> None:
    assert (len(STATES) > 1_000, set(STATES) - settled()) == (True, set())


def test_every_stopped_partition_is_shown_a_command() -> None:
    assert [pair for pair in STATES if pair[0].stopped and not ways(*pair)] == []


def test_no_command_that_is_shown_is_refused() -> None:
    """What the commands check is what the table shows."""
    wrong = []
    for mine, back in STATES:
        for way in ways(mine, back):
            to = LATEST if "latest" in way.command else ""
            if "link reset" in way.command and not may_reset(mine, back, to):
                wrong.append((mine, back, way.command))
            if "refill {link}" in way.command and refillable(mine, back) not in {Refillable.PLANNED, *WILL_BE}:
                wrong.append((mine, back, way.command))
    assert wrong == []


def lossy(command: str) -> bool:
    """Whether a command leaves out records that the source has."""
    return command.endswith("--to latest --yes")


def test_no_command_that_leaves_out_records_is_recommended_where_another_one_copies_them() -> None:
    shown = [[way.command for way in ways(*pair)] for pair in STATES]
    assert [some for some in shown if some and lossy(some[0]) and not all(map(lossy, some))] == []


def test_a_partition_without_a_position_is_shown_a_command_that_leaves_out_nothing() -> None:
    wrong = [pair for pair in STATES if pair[0].stopped and not pair[0].placed and lossy(ways(*pair)[0].command)]
    assert wrong == []


@pytest.mark.parametrize("records", FLAGS)
def test_two_links_whose_topics_were_recreated_on_both_sides_do_not_wait_for_each_other(records: bool) -> None:
    purged = PartitionStanding(LogIdentity.OTHER, LogIdentity.OTHER, records=records, empty=not records, stopped=True)
    assert [may_reset(purged, purged, to) for to in ("earliest", "latest")] == [True, True]


def test_a_recreated_source_without_a_target_topic_is_reset_before_any_refill() -> None:
    """The target topic of a recreated source topic is created after a reset only."""
    lost = PartitionStanding(LogIdentity.OTHER, LogIdentity.GONE, ready=False, stopped=True)
    assert [way.command.partition(" --to ")[2] for way in ways(lost, None)] == ["earliest --yes", "latest --yes"]


def test_a_link_is_not_reset_while_the_opposite_one_can_restore_what_its_source_lost() -> None:
    lost, whole = (
        PartitionStanding(source=LogIdentity.OTHER, stopped=True),
        PartitionStanding(target=LogIdentity.OTHER, stopped=True),
    )
    assert (restores(whole, lost), may_reset(lost, whole, "latest"), may_reset(whole, lost, "latest")) == (
        True,
        False,
        True,
    )


def test_every_command_of_the_table_leads_out_of_some_state() -> None:
    assert {way.command for pair in STATES for way in ways(*pair)} == {way.command for way in WAYS}
