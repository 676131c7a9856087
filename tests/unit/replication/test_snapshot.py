import pytest

from trueup.connectors.contract import LogId, Position, Progress, Run
from trueup.state.replication.anomalies import CopyObservation, anomalies
from trueup.streams.replication.links.checkpoints import Copy
from trueup.streams.replication.links.snapshot import NOTHING, ClusterSnapshot, LinkFacts, ids, look, seen

ORDERS = LogId("orders", 0)


def at(offset: int) -> Copy:
    made = Copy(ORDERS, ORDERS, 0)
    made.position = Position(offset)
    return made


def facts(source_end: int, problem: str = "") -> LinkFacts:
    return LinkFacts(
        ClusterSnapshot({"orders": (ORDERS,)}, {}, {ORDERS: (0, source_end)}, problem),
        ClusterSnapshot({"orders": (ORDERS,)}),
        1,
    )


def rules_of(before: CopyObservation, now: CopyObservation) -> list[str]:
    return [anomaly.rule for anomaly in anomalies(before, now)]


def test_a_copy_that_went_on_while_the_source_was_asked_is_not_past_its_end() -> None:
    was = look(at(90), NOTHING)
    now = seen(at(150), facts(100), was)
    assert rules_of(now, now) == []


def test_a_source_that_does_not_respond_has_lost_nothing() -> None:
    now = seen(at(150), facts(100, "no answer"), look(at(150), NOTHING))
    assert rules_of(now, now) == []


def test_records_of_others_in_the_target_are_reported_where_the_link_is_the_only_writer() -> None:
    copy = at(50)
    copy.take(Progress(ORDERS, ORDERS, Position(60), copied=10, foreign=3), 1)
    reported = [rules_of(now, now) for now in (look(copy, facts(100), alone) for alone in (True, False))]
    assert reported == [["replication.target-written"], []]


def test_a_source_that_twice_ends_before_the_copy_lost_records() -> None:
    now = seen(at(150), facts(100), look(at(150), NOTHING))
    assert rules_of(now, now) == ["replication.source-lost-records"]


@pytest.mark.parametrize("source", [ClusterSnapshot(), ClusterSnapshot(problem="no answer")])
def test_a_target_is_not_without_a_topic_for_which_it_was_not_asked(source: ClusterSnapshot) -> None:
    now = look(copied(), LinkFacts(source, ClusterSnapshot(cluster="west"), 1))
    assert rules_of(now, now) == []


def test_a_target_that_was_asked_twice_and_does_not_have_the_topic_lost_it() -> None:
    now = look(copied(), LinkFacts(ClusterSnapshot({"orders": (ORDERS,)}), ClusterSnapshot(cluster="west"), 1))
    assert rules_of(now, now) == ["replication.target-gone"]


def copied() -> Copy:
    made = at(50)
    made.take(Progress(ORDERS, ORDERS, Position(60), (Run(50, 50, 10),), copied=10), 1)
    return made


def test_a_topic_that_cannot_be_read_counts_as_the_one_that_was_copied() -> None:
    copy = at(90)
    copy.source_id, copy.target_id = "east-1", "west-1"
    hidden = ClusterSnapshot(unreadable={"orders": "not authorized"})
    assert ids(copy, LinkFacts(ClusterSnapshot(), hidden, 1)) == ("", "west-1")
