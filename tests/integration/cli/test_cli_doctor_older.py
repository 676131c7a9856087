"""`trueup doctor` and a broker of Kafka 3.0: rows say what that version cannot do; no check ends with an error."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.configuration import parse
from tests.replication.old_kafka import OldKafka
from trueup.connectors.embedded.kafka import Kafka
from trueup.state.settings.settings import Settings
from trueup.streams.logdirs import checks as logdirs
from trueup.streams.replication import checks as replication
from trueup.streams.runtime.checks import warn

pytestmark = [pytest.mark.servers, pytest.mark.release]


@pytest.fixture(scope="module")
def settings(new_root: Callable[[], Path]) -> Iterator[Settings]:
    """A link from an old broker to a new one, and the log directories of the old one."""
    root = new_root()
    paths = ",".join(str(root / name) for name in ("one", "two"))
    with OldKafka(new_root(), {"log.dirs": paths}) as old, Kafka(new_root()) as new:
        old.up()
        new.up()
        admin = AdminClient({"bootstrap.servers": old.bootstrap})
        admin.create_topics([NewTopic("orders", 2)])["orders"].result(60)
        kafka = {"old": {"bootstrap": old.bootstrap, "bit": 0}, "new": {"bootstrap": new.bootstrap, "bit": 1}}
        link = {"source": "old", "target": "new", "topics": ["orders"]}
        yield parse({"kafka": kafka, "links": {"l": link}, "logdirs": {"old": {"strategy": "size"}}})


def test_log_directories_that_report_no_sizes_are_a_warning_with_the_version_that_does(settings: Settings) -> None:
    todo = "no replica is moved on it; brokers of version 3.3 or later do"
    assert [*logdirs.all_of(settings)] == [warn("logdirs.old: broker 1", "it does not report sizes", todo)]


def test_a_link_from_it_is_checked_as_any_other(settings: Settings) -> None:
    found = [*replication.all_of(settings)]
    assert [(check.name, check.status) for check in found] == [
        ("kafka.old", "ok"),
        ("kafka.new", "ok"),
        ("links.l", "ok"),
    ]
    assert found[-1].found == "1 topic to copy, 1 to create at the target, mode observe"
