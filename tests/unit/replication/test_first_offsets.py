"""Start offsets of partitions that a link has not copied yet."""

from collections.abc import Iterable

import pytest

from tests.unit.replication.test_link import ZERO, Rig, facts
from trueup.connectors.contract import LogId
from trueup.state.replication.settings import LinkSettings as Declared
from trueup.streams.replication.links.snapshot import ClusterSnapshot, LinkFacts


class Starts:
    """Latest is 100, earliest 0."""

    def __call__(self, declared: Declared, sources: Iterable[LogId]) -> dict[LogId, int]:
        return dict.fromkeys(sources, 100 if declared.start == "latest" else 0)


def with_topic(name: str, there: int = 1) -> LinkFacts:
    """Both clusters after a topic with one partition was added to the source."""
    source, target, at_ms = facts()
    return LinkFacts(
        source._replace(topics={**source.topics, name: (LogId(name, 0),)}, names=source.names | {name}),
        target._replace(topics={**target.topics, name: [LogId(name, number) for number in range(there)]}),
        at_ms,
    )


def begun_at(rig: Rig, topic: str, number: int = 0) -> int:
    """The start offset of a partition in the next round."""
    return next(a.start for o in rig.link.orders() for a in o.lease.assignments if a.source == LogId(topic, number))


@pytest.fixture
def late() -> Rig:
    """A link with start=latest that has already copied records."""
    rig = Rig(start="latest")
    rig.starts = Starts()
    rig.round(100, 100)
    return rig


def test_a_link_begins_at_the_configured_start(late: Rig) -> None:
    assert late.link.copies[ZERO].start == 100


def test_existing_logs_of_chosen_topics_begin_at_the_start_of_the_link(late: Rig) -> None:
    late.set("topics", ["orders", "pays"])
    late.link.wake()
    late.link.update(facts=with_topic("pays"))
    assert begun_at(late, "pays") == 100


def test_a_topic_made_after_a_change_of_topics_is_copied_from_its_beginning(late: Rig) -> None:
    late.set("topics", ["/.*/"])
    late.link.wake()
    late.link.update(facts=with_topic("new"))
    assert begun_at(late, "new") == 0


def test_a_topic_made_while_the_link_is_paused_is_copied_from_its_beginning(late: Rig) -> None:
    late.set("topics", ["/.*/"])
    late.set("paused", True)
    late.link.wake()
    late.link.update(facts=with_topic("new"))
    late.link.orders()
    late.set("paused", False)
    assert begun_at(late, "new") == 0


def test_the_first_topic_made_for_a_link_without_any_is_copied_from_its_beginning() -> None:
    rig = Rig(start="latest", topics=["new"])
    rig.starts = Starts()
    rig.round()
    rig.link.update(facts=with_topic("new"))
    assert begun_at(rig, "new") == 0


def test_a_topic_that_waits_for_its_place_begins_where_it_ended_when_it_was_chosen(late: Rig) -> None:
    late.set("topics", ["orders", "pays"])
    late.link.wake()
    late.link.update(facts=with_topic("pays", there=0))
    late.link.orders()
    late.starts = lambda _declared, sources: dict.fromkeys(sources, 200)
    late.link.update(facts=with_topic("pays"))
    assert begun_at(late, "pays") == 100


def test_a_partition_added_while_topics_change_is_copied_from_its_beginning(late: Rig) -> None:
    late.set("topics", ["orders", "pays"])
    late.link.update(facts=facts(3, 3))
    assert begun_at(late, "orders", 2) == 0


class Down(Starts):
    """The leader of partition 0 does not answer while ``down``."""

    down = True

    def __call__(self, declared: Declared, sources: Iterable[LogId]) -> dict[LogId, int]:
        answers = super().__call__(declared, sources)
        return {log: at for log, at in answers.items() if not (self.down and log == ZERO)}


def test_a_partition_that_did_not_answer_the_first_look_begins_at_the_start_of_the_link() -> None:
    rig = Rig(start="latest")
    rig.starts = starts = Down()
    rig.round(100, 100)
    waits = ZERO not in rig.link.copies
    starts.down = False
    assert (waits, begun_at(rig, "orders")) == (True, 100)


def test_a_topic_that_was_deleted_before_it_answered_begins_at_0_when_it_is_made_again() -> None:
    rig = Rig(start="latest")
    rig.starts = starts = Down()
    rig.round(100, 100)
    rig.link.update(facts=facts(0, 2)._replace(source=ClusterSnapshot({})))
    rig.link.orders()
    starts.down = False
    rig.link.update(facts=facts())
    assert begun_at(rig, "orders") == 0
