"""Records of the journal that others wrote: no reader of a topic fails because of one, and each is reported."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tests.garbage import TOPICS, of
from tests.integration.kafka.journals import LEDGER, topology
from trueup.connectors.contract import LogId
from trueup.connectors.kafka.journal.topics import TopicRecord
from trueup.connectors.kafka.journal.transactions import Body, Signed
from trueup.state.common.errors import BadBytes
from trueup.state.settings.settings import JournalSettings
from trueup.streams.bookkeeper import reached
from trueup.streams.bookkeeper.codec import topology_bytes, topology_record
from trueup.streams.deletion import owners
from trueup.streams.deletion import query as deletion
from trueup.streams.journal import repair
from trueup.streams.journal import unreadable as unreadable_records
from trueup.streams.journal.codec import encode, ledger_key
from trueup.streams.journal.decode import readable
from trueup.streams.journal.history import History
from trueup.streams.journal.journal import Journal
from trueup.streams.journal.topic import topic_of
from trueup.streams.journal.unreadable import SHOWN
from trueup.streams.placement import query as placement
from trueup.streams.replication.links import checkpoints

BROKEN = {"an empty body", "JSON", "bytes"}
KEY = "k" * 32


class Broker:
    """The topics in memory, each with one partition."""

    def __init__(self) -> None:
        self.entries: list[TopicRecord] = []

    def send(self, parts: Iterable[tuple[str, Any, Any]], _within_s: float = 0, partition: int = -1) -> None:
        for topic, keys, bodies in parts:
            for key, body in zip(keys, bodies, strict=True):
                self.write(topic, key, body)

    def write(self, topic: str, key: bytes, body: Body) -> None:
        headers = {body.name: body.value} if isinstance(body, Signed) else {}
        content = None if isinstance(body, Signed) else body
        self.entries.append(TopicRecord(key, content, topic, 0, len(self.entries), headers))

    def read(self, topic: str, last: int | None = None) -> Iterator[TopicRecord]:
        return (entry for entry in list(self.entries) if entry.topic == topic)

    def reachable(self, _topic: str, _timeout_s: float) -> bool:
        return True

    def partitions(self, topics: Iterable[str]) -> list[tuple[str, int]]:
        return [(topic, 0) for topic in topics]

    def follow_all(self, begins: Any, stop: Any, seen: Any, at_once: int) -> None:
        for start in range(0, len(self.entries), at_once):
            seen(self.entries[start : start + at_once])

    def ranges(self, topic: str) -> dict[int, tuple[int, int]]:
        return {0: (0, len(self.entries))}

    def identities(self, topics: Iterable[str]) -> dict[str, str]:
        return {entry.topic: "id" for entry in self.entries}

    def configs(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        return {topic: {} for topic in topics}


def journal(broker: Broker, key_file: Path | None = None) -> Journal:
    made = Journal("127.0.0.1:1", JournalSettings(key_file=str(key_file or "")), "c")
    made.topics = cast("Any", broker)
    return made


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def everywhere(broker: Broker) -> Journal:
    """A journal with all kinds of garbage in each topic."""
    made = journal(broker)
    for what in TOPICS:
        for one in of(what):
            broker.write(made.topic(what), one.key, one.body)
    return made


@pytest.fixture(params=[False, True])
def key_file(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    if not request.param:
        return None
    (tmp_path / "key").write_text(KEY)
    return tmp_path / "key"


@pytest.mark.parametrize("what", TOPICS)
def test_what_is_not_readable_is_skipped_and_reported_with_its_place(
    broker: Broker, what: str, key_file: Path | None
) -> None:
    made = journal(broker, key_file)
    for one in of(what):
        broker.write(made.topic(what), one.key, one.body)
    read = [record.where for record in made.read(what)] if not topic_of(what).columns else []
    read += [e.where for some, _ in made.columns(what) for e in some] if topic_of(what).columns else []
    reported = [bad.where for bad in made.unreadable.all()]
    assert sorted([*read, *reported]) == sorted(entry.where for entry in broker.entries)
    kinds = dict(zip((entry.where for entry in broker.entries), (one.kind for one in of(what)), strict=True))
    wanted = {*kinds.values()} if key_file and not topic_of(what).unsigned else BROKEN
    assert wanted <= {kinds[where] for where in reported}


@pytest.mark.parametrize(
    ("load", "wanted"),
    [
        (lambda journal: reached.known(journal, 0).zxid, 0),
        (owners.known, ({}, {}, 0)),
        (checkpoints.load, {}),
        (lambda journal: journal.newest("memory"), {}),
        (lambda journal: journal.newest("findings"), {}),
        (lambda journal: journal.newest("topology"), {}),
        (lambda journal: journal.newest("repairs"), {}),
        (lambda journal: journal.newest("deletions"), {}),
        (lambda journal: journal.newest("changes"), {}),
        (lambda journal: journal.newest("read_priorities"), {}),
        (lambda journal: journal.newest("directories"), {}),
        (lambda journal: journal.newest("damages"), {}),
        (lambda journal: journal.newest("reached"), {}),
    ],
)
def test_no_load_takes_garbage(everywhere: Journal, load: Callable[[Journal], Any], wanted: Any) -> None:
    assert load(everywhere) == wanted


def unreadable(made: Journal) -> dict[str, dict[LogId, str]]:
    """The positions that are not readable, after all were loaded."""
    problems = dict[bytes, str]()
    checkpoints.load(made, problems)
    return checkpoints.unreadable(problems)


def test_a_position_that_is_not_readable_is_none_of_a_new_partition(broker: Broker) -> None:
    made = journal(broker)
    broker.write(made.topic("links"), b"east-west/orders-0", b"not Avro")
    assert {link: [*logs] for link, logs in unreadable(made).items()} == {"east-west": [LogId("orders", 0)]}


def test_a_position_that_was_deleted_by_a_repair_is_that_of_a_new_partition(broker: Broker) -> None:
    made = journal(broker)
    for body in (b"not Avro", None):
        broker.write(made.topic("links"), b"east-west/orders-0", body)
    assert unreadable(made) == {}


def test_the_history_is_loaded_without_garbage(everywhere: Journal) -> None:
    made = History(everywhere)
    made.load()
    assert {row["at_ms"] for row in made.latest(100)} <= {1 << 40}


SOUND = encode("ledgers", LEDGER)
NAMES = ("ledgers", "topology")
NODE = {
    "path": "/managed-ledgers/a",
    "owner": "a",
    "name": "",
    "status": 1,
    "version": 0,
    "mzxid": 5,
    "seen_ms": 5,
    "ledgers": [7],
    "dropped": [],
    "elsewhere": False,
    "error": "",
}


def test_the_query_of_placement_skips_garbage() -> None:
    rows = [(kind, one.key, one.body) for kind, what in enumerate(NAMES) for one in of(what) if one.body is not None]
    rows += [(placement.LEDGER, key, SOUND) for key in (ledger_key(6), ledger_key(7), b"somebyte")]
    rows += [(placement.TOPOLOGY, b"topology", topology_bytes(topology(3)))]
    frame = pd.DataFrame(rows, columns=["kind", "key", "value"])
    ledgers, found = placement.split(iter([frame]))
    assert ledgers.ledger.tolist() == [7]
    assert found is not None
    assert found.epoch == 3


def test_the_query_of_deletion_skips_garbage() -> None:
    names = ("ledgers", "owners", "topology")
    rows: list[Any] = [
        (kind, one.key, one.body) for kind, what in enumerate(names) for one in of(what) if one.body is not None
    ]
    rows += [(deletion.LEDGER, key, SOUND) for key in (ledger_key(6), ledger_key(7), b"somebyte")]
    paths = (b"/managed-ledgers/b", b"/managed-ledgers/a", b"", None)
    rows += [(deletion.OWNER, key, encode("owners", NODE)) for key in paths]
    rows += [(deletion.TOPOLOGY, b"topology", topology_bytes(topology(3)))]
    types = {"kind": pa.int32(), "key": pa.binary(), "value": pa.binary()}
    columns = zip(types.items(), zip(*rows, strict=True), strict=True)
    batch = pa.RecordBatch.from_pydict({name: pa.array(column, kind) for (name, kind), column in columns})
    routed = [row for part in deletion.route(1)(iter([batch])) for row in part.to_pylist()]
    ledgers, nodes, epoch = deletion.split(iter([pd.DataFrame(routed)]))
    found = [nodes.names[row["path"]] for row in nodes.rows]
    assert (ledgers.rows["ledger"].tolist(), found, epoch) == ([7], ["/managed-ledgers/a"], 3)


def test_a_newer_record_of_the_key_ends_the_problem(broker: Broker) -> None:
    made = journal(broker)
    broker.write(made.topic("topology"), b"topology", b"")
    made.newest("topology")
    assert len(made.unreadable.problems()) == 1
    made.put([("topology", b"topology", topology_record(topology(1)))])
    assert (len(made.newest("topology")), made.unreadable.problems()) == (1, [])


def test_an_older_record_of_the_key_stays_in_force(broker: Broker) -> None:
    made = journal(broker)
    made.put([("topology", b"topology", topology_record(topology(1)))])
    broker.write(made.topic("topology"), b"topology", b"garbage")
    assert made.newest("topology")[b"topology"].epoch == 1


def test_many_records_are_reported_with_their_number(broker: Broker) -> None:
    made = journal(broker)
    for number in range(SHOWN + 5):
        broker.write(made.topic("owners"), b"%d" % number, b"")
    made.newest("owners")
    assert (len(made.unreadable), made.unreadable.problems()[-1][:10]) == (SHOWN + 5, "5 more jou")


def many(broker: Broker, made: Journal, count: int) -> list[bytes]:
    """Write garbage of several keys into one topic. Returns the keys."""
    keys = [b"%d" % number for number in range(count)]
    for key in keys:
        broker.write(made.topic("owners"), key, b"")
    return keys


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A running application holds three records."""
    monkeypatch.setattr(unreadable_records, "KNOWN", 3)


@pytest.mark.usefixtures("few")
def test_records_that_are_not_held_are_counted_once(broker: Broker) -> None:
    made = journal(broker)
    many(broker, made, 8)
    for _ in range(2):
        made.newest("owners")
    (last,) = [problem for problem in made.unreadable.problems() if " more " in problem]
    assert (len(made.unreadable.all()), len(made.unreadable), last[:6], "5 are not held" in last) == (
        3,
        8,
        "5 more",
        True,
    )


@pytest.mark.usefixtures("few")
def test_records_that_are_not_held_stay_reported_when_the_others_are_repaired(broker: Broker) -> None:
    made = journal(broker)
    for key in many(broker, made, 8)[:3]:
        broker.write(made.topic("owners"), key, None)
    made.newest("owners")
    assert (made.unreadable.all(), len(made.unreadable), len(made.unreadable.problems())) == ([], 5, 1)


@pytest.mark.usefixtures("few")
def test_a_topic_that_was_emptied_has_no_records_that_are_not_held(broker: Broker) -> None:
    made = journal(broker)
    many(broker, made, 8)
    made.newest("owners")
    made.unreadable.forget({made.topic("owners")})
    assert len(made.unreadable) == 0


@pytest.mark.usefixtures("few")
def test_a_repair_finds_more_records_than_a_running_application_holds(broker: Broker) -> None:
    made = journal(broker)
    keys = many(broker, made, 8)
    for what in ("config", "topology"):
        broker.write(made.topic(what), b"key", b"garbage")
    planned = repair.plan(made)
    assert sorted(one.bad.key for one in planned) == sorted([*keys, b"key", b"key"])
    repair.execute(made, planned[:4])
    assert len(repair.find(journal(broker))[0]) == 6
    repair.execute(made, planned[4:])
    assert repair.find(journal(broker)) == ([], True)


def test_a_repair_writes_the_record_before_it_again_or_deletes_the_key(broker: Broker, key_file: Path | None) -> None:
    made = journal(broker, key_file)
    setting = {"name": "placement.mode", "value": '"approve"', "at_ms": 5, "by": "ada"}
    made.put([("config", b"placement.mode", setting), ("topology", b"topology", topology_record(topology(4)))])
    for what, key in (("config", b"placement.mode"), ("topology", b"topology"), ("config", b"\xff"), ("owners", b"o")):
        broker.write(made.topic(what), key, b"garbage")
    planned = repair.plan(journal(broker, key_file))
    assert sorted((one.bad.key, one.before is not None) for one in planned) == [
        (b"o", False),
        (b"placement.mode", True),
        (b"topology", True),
        (b"\xff", False),
    ]
    repair.execute(made, planned)
    # Compaction keeps the newest of each key.
    newest = {(entry.topic, entry.key): entry for entry in broker.entries}
    broker.entries = sorted(newest.values(), key=lambda entry: entry.offset)
    later = journal(broker, key_file)
    assert repair.find(later) == ([], True)
    assert (later.newest("config"), later.newest("topology")[b"topology"].epoch) == ({b"placement.mode": setting}, 4)


def test_an_inspection_leaves_nine_tenths_of_the_time_to_the_application(everywhere: Journal) -> None:
    waited_s: list[float] = []
    ticks = itertools.count()  # a second passes between two readings of the clock
    everywhere.inspect(cast("Any", SimpleNamespace(wait=waited_s.append)), lambda: float(next(ticks)))
    assert (len(everywhere.unreadable) > len(TOPICS), {*waited_s}) == (True, {9.0})


def test_each_bad_item_is_found_among_many() -> None:
    bad = {3, 4, 77}

    def rows(items: Any) -> Any:
        if bad & {*items}:
            raise BadBytes("here", 0, "a good one", "a bad one")
        return np.array(items)

    found = list(readable(range(100), rows))
    assert [part.start for part, each in found if isinstance(each, BadBytes)] == sorted(bad)
    assert [i for _, each in found if not isinstance(each, BadBytes) for i in each] == [
        i for i in range(100) if i not in bad
    ]


def test_every_form_is_a_function() -> None:
    for what in TOPICS:
        topic = topic_of(what)
        assert topic.form == "" or callable(topic.formed), SimpleNamespace(topic=what)
