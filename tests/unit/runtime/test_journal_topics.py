"""Topics of the journal that were lost, created again or that forget: modes, problems, the end of the application."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from tests.configuration import parse
from trueup.state.common.errors import BadSettings, Retry
from trueup.state.instance.journal_topics import JournalTopicState, expiring, lost
from trueup.state.logdirs.settings import LogDirsSettings
from trueup.state.placement.settings import PlacementSettings
from trueup.state.replication.settings import LinkSettings
from trueup.streams.config.journal_topics import LOOKS, JournalTopics, recreated
from trueup.streams.config.live import Live
from trueup.streams.journal.codec import encode
from trueup.streams.journal.journal import Journal, JournalRecord
from trueup.streams.journal.topic import declared

FILE = {
    "cluster": {"zookeeper": "zk:2181"},
    "placement": {"mode": "enforce"},
    "kafka": {"east": {"bootstrap": "e:1", "bit": 0}, "west": {"bootstrap": "w:1", "bit": 1}},
    "links": {"l": {"source": "east", "target": "west", "topics": ["orders"], "mode": "approve"}},
    "logdirs": {"east": {"mode": "enforce"}},
}
BASE = parse(FILE)
CONFIG = "t.config"
KEPT = JournalTopicState("id-1", 0, "compact", 604_800_000, -1)


class Broker:
    """The topics of a journal whose names have the prefix t."""

    bootstrap = "b:9092"

    def __init__(self) -> None:
        self.found = {f"t.{each.name}": KEPT for each in declared()}
        self.first = 0
        self.records: list[tuple[bytes, Any]] = []

    def topic(self, what: str) -> str:
        return f"t.{what}"

    def states(self) -> dict[str, JournalTopicState]:
        return dict(self.found)

    def begin(self, what: str) -> int:
        assert what == "config"
        return self.first

    def read(self, what: str) -> Iterator[JournalRecord]:
        for offset, (key, value) in enumerate(self.records):
            if offset >= self.first:
                yield JournalRecord(key, value, f"offset {offset}", offset)

    def put(self, records: Iterator[tuple[str, bytes, Any]]) -> None:
        for what, key, value in records:
            encode(what, value)
            self.records.append((key, value))

    def lose(self, before: int) -> None:
        """Delete the records before this offset, as retention does."""
        self.first = before

    def anew(self, identity: str = "id-2") -> None:
        """Delete the config topic and create it, empty."""
        self.found[CONFIG] = KEPT._replace(id=identity)
        self.records, self.first = [], 0


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def start(broker: Broker, tmp_path: Path) -> Callable[..., tuple[Live, JournalTopics]]:
    def started(created: Sequence[str] = (), file: str = "kept.json") -> tuple[Live, JournalTopics]:
        recreated(broker, created, 0)
        live = Live(BASE, cast("Journal", broker), lambda: 0)
        live.load()
        topics = JournalTopics(broker, live, tmp_path / file)
        topics.start()
        return live, topics

    return started


Start = Callable[..., tuple[Live, JournalTopics]]


def modes(live: Live) -> tuple[str, str, str]:
    now = live.now
    return (
        now.section(PlacementSettings).mode,
        now.table(LinkSettings)["l"].mode,
        now.table(LogDirsSettings)["east"].mode,
    )


OBSERVE, FILES = ("observe",) * 3, ("enforce", "approve", "enforce")


def never() -> None:
    pytest.fail("the application must not end")


def test_a_new_journal_is_confirmed_by_itself(broker: Broker, start: Start) -> None:
    live, topics = start(created=list(broker.found))
    assert (modes(live), live.now.journal.confirmed, topics.problems) == (FILES, "id-1@0", [])


def test_a_journal_of_the_last_release_is_confirmed_by_itself(start: Start) -> None:
    live, _ = start()
    assert (modes(live), live.now.journal.confirmed) == (FILES, "id-1@0")


def test_a_config_topic_that_was_created_again_leaves_every_mode_at_observe(broker: Broker, start: Start) -> None:
    start()
    broker.anew()
    live, topics = start()
    assert modes(live) == OBSERVE
    assert "created again: expected id-1@0; found id-2@0" in topics.problems[0]
    assert "`trueup config set journal.confirmed id-2@0`" in topics.problems[0]


def test_a_config_topic_that_was_missing_is_doubted_in_later_runs_too_and_without_a_data_directory(
    broker: Broker, start: Start
) -> None:
    live, _ = start(created=[CONFIG], file="first.json")
    again, topics = start(file="second.json")
    assert (modes(live), modes(again)) == (OBSERVE, OBSERVE)
    assert "the topic was missing at an earlier start" in topics.problems[0]


def test_records_that_expired_while_nothing_ran_leave_every_mode_at_observe(broker: Broker, start: Start) -> None:
    start()
    broker.lose(len(broker.records))
    live, topics = start()
    assert modes(live) == OBSERVE
    assert "its oldest records were deleted: expected id-1@0; found id-1@1" in topics.problems[0]


def test_a_topic_that_lost_all_records_and_kept_its_id_leaves_every_mode_at_observe(
    broker: Broker, start: Start
) -> None:
    start()
    broker.records = []
    live, topics = start()
    assert modes(live) == OBSERVE
    assert "the record of journal.confirmed is missing" in topics.problems[0]


def test_an_instance_that_never_led_takes_the_record_of_another_one(start: Start) -> None:
    start(file="first.json")
    live, _ = start(file="second.json")
    assert modes(live) == FILES


def test_a_confirmation_by_the_operator_lets_the_modes_apply(broker: Broker, start: Start) -> None:
    start()
    broker.anew()
    live, topics = start()
    live.set("journal.confirmed", "id-2@0")
    topics.check(never)
    assert (modes(live), topics.problems) == (FILES, [])
    assert modes(start()[0]) == FILES


def test_a_confirmation_of_another_place_changes_nothing(broker: Broker, start: Start) -> None:
    start()
    broker.anew()
    live, topics = start()
    live.set("journal.confirmed", "id-1@0")
    topics.check(never)
    assert modes(live) == OBSERVE


def test_a_mode_cannot_be_raised_before_the_confirmation(broker: Broker, start: Start) -> None:
    start()
    broker.anew()
    live, _ = start()
    with pytest.raises(BadSettings, match=r"placement\.mode: expected the settings of the journal to be complete"):
        live.set("placement.mode", "enforce")
    assert live.set("placement.mode", "observe") == "observe"


def test_settings_that_a_running_application_holds_are_written_again(broker: Broker, start: Start) -> None:
    live, topics = start()
    live.set("placement.mode", "approve")
    broker.lose(len(broker.records))
    topics.check(never)
    assert modes(live)[0] == "approve"
    broker.first = 2
    later, _ = start()
    assert (modes(later)[0], later.now.journal.confirmed) == ("approve", "id-1@2")


def test_a_topic_that_is_created_again_ends_the_application(broker: Broker, start: Start) -> None:
    live, topics = start()
    ended: list[int] = []
    broker.found["t.history"] = KEPT._replace(id="id-9")
    topics.check(lambda: ended.append(1))
    assert (ended, modes(live)) == ([1], OBSERVE)


def test_a_topic_that_stays_deleted_ends_the_application(broker: Broker, start: Start) -> None:
    live, topics = start()
    ended: list[int] = []
    del broker.found[CONFIG]
    for look in range(LOOKS):
        assert ended == [], look
        topics.check(lambda: ended.append(1))
    assert (ended, modes(live)) == ([1], OBSERVE)


def test_a_topic_that_a_starting_broker_does_not_list_yet_stops_actions_until_it_does(
    broker: Broker, start: Start
) -> None:
    live, topics = start()
    gone = broker.found.pop("t.history")
    topics.check(never)
    assert modes(live) == OBSERVE
    broker.found["t.history"] = gone
    topics.check(never)
    assert modes(live) == FILES


def test_a_topic_whose_records_expire_is_a_problem_with_the_command(broker: Broker, start: Start) -> None:
    broker.found[CONFIG] = KEPT._replace(policy="delete")
    live, topics = start()
    assert modes(live) == FILES, "nothing was lost yet"
    (problem,) = topics.problems
    assert "found cleanup.policy=delete with retention.ms=604800000;" in problem
    chosen = "--entity-type topics --entity-name t.config --add-config cleanup.policy=compact"
    assert problem.endswith(f"run kafka-configs.sh --bootstrap-server b:9092 --alter {chosen}")


def test_topics_that_are_made_to_expire_are_no_problem(broker: Broker, start: Start) -> None:
    for name in ("t.history", *(f"t.{each.name}" for each in declared() if each.configs["cleanup.policy"] == "delete")):
        broker.found[name] = KEPT._replace(policy="delete")
    assert start()[1].problems == []


def test_settings_of_topics_that_may_not_be_read_are_unknown(broker: Broker, start: Start) -> None:
    broker.found = {name: JournalTopicState("id-1") for name in broker.found}
    (problem,) = start()[1].problems
    assert problem.startswith("whether records of topics ")
    assert problem.endswith("grant DESCRIBE_CONFIGS on these topics to the user of the journal")


@pytest.mark.parametrize(
    ("policy", "ms", "size", "expires"),
    [("compact", 1, 1, False), ("delete", -1, -1, False), ("delete", 1, -1, True), ("compact,delete", -1, 1, True)],
)
def test_records_expire_by_a_limit_and_a_policy(policy: str, ms: int, size: int, expires: bool) -> None:
    assert bool(expiring({"t": JournalTopicState("i", 0, policy, ms, size)}, "b:1")) is expires


def test_a_first_run_whose_topic_already_lost_records_is_doubted() -> None:
    assert lost(JournalTopicState("i", 7), "", "") == "records before offset 7 were deleted"


def test_what_a_standby_created_is_doubted_by_every_instance_that_leads(broker: Broker, start: Start) -> None:
    broker.anew()
    recreated(broker, [CONFIG], 0)  # by the standby, which does not lead
    live, _ = start(file="another.json")
    assert modes(live) == OBSERVE


def test_without_the_config_topic_an_instance_does_not_lead(broker: Broker, start: Start) -> None:
    del broker.found[CONFIG]
    with pytest.raises(Retry):
        start()
