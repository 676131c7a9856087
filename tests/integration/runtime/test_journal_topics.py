"""Topics of the journal on a real broker that expire, lose records or are created again."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.configuration import parse
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.kafka.journal.topics import TopicClient, TopicSpec
from trueup.state.common.errors import Retry
from trueup.state.placement.settings import PlacementSettings
from trueup.streams.config.journal_topics import JournalTopics, recreated
from trueup.streams.config.live import Live
from trueup.streams.journal.journal import Journal
from trueup.streams.journal.topic import CONFIG

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    made = Kafka(tmp_path_factory.mktemp("journal"))
    made.up()
    yield made
    made.kill()
    made.close()


class Run:
    """The settings of one run, with those of earlier runs in the journal."""

    def __init__(self, broker: Kafka, prefix: str, data: Path) -> None:
        settings = parse(
            {
                "cluster": {"name": "c", "zookeeper": "127.0.0.1:1"},
                "placement": {"mode": "enforce"},
                "journal": {"prefix": prefix},
            }
        )
        self.journal = Journal(broker.bootstrap, settings.journal, "c")
        created = self.journal.create()
        recreated(self.journal, created, 0)
        self.live = Live(settings, self.journal, lambda: 0)
        self.live.load()
        self.topics = JournalTopics(self.journal, self.live, data / "journal-topics.json")
        self.topics.start()

    @property
    def mode(self) -> str:
        return self.live.now.section(PlacementSettings).mode

    def check(self) -> int:
        """Look at the topics; returns how often the application was ended."""
        ended: list[int] = []
        self.topics.check(lambda: ended.append(1))
        return len(ended)

    def check_until(self, condition: Callable[[], object]) -> None:
        """Look at the topics until this holds: a broker answers with a setting some time after it confirmed it."""

        def looked() -> bool:
            self.check()
            return bool(condition())

        wait_until(looked, 30.0, "the broker to answer with the setting")


@pytest.fixture
def admin(broker: Kafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def expire(admin: AdminClient, journal: Journal) -> None:
    """What retention does, at once. The broker refuses it for a compacted topic."""
    topic = journal.topic(CONFIG)
    journal.topics.configure(topic, {"cleanup.policy": "delete"}, 30)
    wait_until(lambda: is_emptied(admin, topic), 30.0, "the broker to apply the setting that it confirmed")
    journal.topics.configure(topic, {"cleanup.policy": "compact"}, 30)
    wait_until(lambda: policy(admin, topic) == "compact", 30.0, "the broker to answer with the setting")


def is_emptied(admin: AdminClient, topic: str) -> bool:
    """Delete all records. False if the log is still compacted for its broker."""
    for future in admin.delete_records([TopicPartition(topic, 0, -1)]).values():
        try:
            future.result(30)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.POLICY_VIOLATION:
                raise
            return False
    return True


def policy(admin: AdminClient, topic: str) -> str:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    return str(admin.describe_configs([resource])[resource].result(30)["cleanup.policy"].value)


def test_a_new_journal_is_trusted_and_later_runs_trust_it(broker: Kafka, tmp_path: Path) -> None:
    runs = [Run(broker, "new", tmp_path) for _ in range(2)]
    assert [(run.mode, run.topics.problems, run.check()) for run in runs] == [("enforce", [], 0)] * 2


def test_a_policy_that_lets_settings_expire_is_found_and_mended_by_the_command(broker: Kafka, tmp_path: Path) -> None:
    run = Run(broker, "policy", tmp_path)
    config = run.journal.topic(CONFIG)
    run.journal.topics.configure(config, {"cleanup.policy": "delete"}, 30)
    run.check_until(lambda: run.topics.problems)
    (problem,) = run.topics.problems
    assert problem.startswith(
        f"records of topic {config} expire: expected cleanup.policy=compact; found cleanup.policy=delete"
    )
    name, _, value = problem.rpartition("--add-config ")[2].partition("=")
    run.journal.topics.configure(config, {name: value}, 30)
    run.check_until(lambda: not run.topics.problems)
    assert run.topics.problems == []


def test_settings_that_expired_leave_the_mode_at_observe_until_they_are_confirmed(
    broker: Kafka, admin: AdminClient, tmp_path: Path
) -> None:
    before = Run(broker, "expired", tmp_path)
    before.live.set("placement.mode", "observe")
    expire(admin, before.journal)
    run = Run(broker, "expired", tmp_path)
    assert run.mode == "observe"
    command = run.topics.problems[0].rpartition("`trueup config set ")[2].rstrip("`")
    run.live.set(*command.split())
    assert (run.check(), run.mode, run.topics.problems) == (0, "enforce", [])


def test_a_running_application_writes_settings_that_expire_again(
    broker: Kafka, admin: AdminClient, tmp_path: Path
) -> None:
    run = Run(broker, "again", tmp_path)
    run.live.set("placement.mode", "approve")
    expire(admin, run.journal)
    assert (run.check(), run.mode, run.topics.problems) == (0, "approve", [])
    assert Run(broker, "again", tmp_path).mode == "approve"


def test_a_deleted_config_topic_ends_the_application_and_the_next_one_only_observes(
    broker: Kafka, admin: AdminClient, tmp_path: Path
) -> None:
    run = Run(broker, "gone", tmp_path)
    run.journal.topics.delete([run.journal.topic(CONFIG)], 30)
    run.journal.create()
    assert (run.check(), run.mode) == (1, "observe")
    assert Run(broker, "gone", tmp_path).mode == "observe"


def test_a_config_topic_that_was_deleted_while_nothing_ran_is_found_without_a_data_directory(
    broker: Kafka, tmp_path: Path
) -> None:
    run = Run(broker, "alone", tmp_path)
    run.journal.topics.delete([run.journal.topic(CONFIG)], 30)
    found = [Run(broker, "alone", tmp_path / name).mode for name in ("one", "two")]
    assert found == ["observe"] * 2


def test_the_identity_changes_if_one_of_the_topics_is_created_again(broker: Kafka, tmp_path: Path) -> None:
    journal = Run(broker, "identity", tmp_path).journal
    before = [journal.identity(["ledgers", "owners"]), journal.identity(["ledgers"])]
    journal.forget(["owners"])
    after = [journal.identity(["ledgers", "owners"]), journal.identity(["ledgers"])]
    assert [a == b for a, b in zip(before, after, strict=True)] == [False, True]


def test_a_write_that_failed_does_not_fail_the_next_one(broker: Kafka) -> None:
    topics = TopicClient(broker.bootstrap, {})
    topics.create([TopicSpec("written", 1, 1, {})], 60.0)
    topics.send([("written", [b"key"], [b"first"])])
    broker.kill()
    with pytest.raises(Retry, match="unacknowledged"):
        topics.send([("written", [b"key"], [b"second"])], 0.5)
    broker.restart()
    topics.send([("written", [b"key"], [b"third"])])
    assert [entry.body for entry in topics.read("written")][-1] == b"third"
