"""Target logs of a topic, and use of a lagging end offset."""

import pytest

from trueup.connectors.contract import LogId, log_of
from trueup.streams.replication.links.checkpoints import Copy
from trueup.streams.replication.links.snapshot import AcknowledgedEnds, pairs

HERE = [LogId("orders", number) for number in (3, 70, 4_096)]
THERE = [LogId("copied", number) for number in range(3)]


def test_logs_of_the_same_name_are_pairs() -> None:
    there = [LogId("copied", log.number) for log in HERE]
    assert pairs(HERE, "copied", reversed(there), {}) == dict(zip(HERE, there, strict=True))


def test_others_take_what_is_free_in_order() -> None:
    assert pairs(HERE, "copied", THERE, {}) == dict(zip(HERE, THERE, strict=True))


def test_queues_are_paired_in_the_order_of_brokers() -> None:
    here = [LogId("orders", number, broker) for broker in ("a", "b") for number in range(2)]
    there = [LogId("copied", number, "x") for number in range(4)]
    assert pairs(here, "copied", there, {}) == dict(zip(here, there, strict=True))


def test_a_pair_stays_when_logs_are_added() -> None:
    before = pairs(HERE[1:], "copied", THERE, {})
    after = pairs(HERE, "copied", THERE, before)
    assert (after, before) == ({**before, HERE[0]: THERE[2]}, {HERE[1]: THERE[0], HERE[2]: THERE[1]})


def test_a_log_whose_place_is_gone_takes_no_other() -> None:
    assert pairs(HERE[:1], "copied", THERE, {HERE[0]: LogId("copied", 9)}) == {}


def test_a_new_log_does_not_take_the_place_of_its_name_from_another() -> None:
    zero, other = LogId("orders", 0), LogId("orders", 5)
    assert pairs([zero, other], "copied", THERE, {other: THERE[0]}) == {other: THERE[0], zero: THERE[1]}


@pytest.mark.parametrize("log", [LogId("orders", 3), LogId("orders", 3, "broker-a")])
def test_the_journal_gives_a_log_back(log: LogId) -> None:
    assert log_of(log.path, log.number) == log


class Copied(Copy):
    """A copy with a fixed end."""

    end = -1

    @property
    def copied_end(self) -> int:
        return self.end


@pytest.mark.parametrize(
    ("ends", "expected"),
    [([(0.0, 10)], -1), ([(0.0, 10), (1.0, 20), (2.5, 30)], 10), ([(0.0, 10), (1.0, 5), (2.5, 6)], -1)],
    ids=["too early", "as it was", "begun anew"],
)
def test_a_lagging_end_is_held_to_what_was_acknowledged_before(ends: list[tuple[float, int]], expected: int) -> None:
    settled, copy = AcknowledgedEnds(), Copied(HERE[0], THERE[0], 0)
    for at_s, end in ends:
        copy.end = end
        found = settled.end(copy, 2.0, at_s)
    assert found == expected
