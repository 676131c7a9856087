"""Signed records of the journal: forged ones are not read."""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

from tests.formats import example
from tests.garbage import TOPICS, of
from trueup.connectors.kafka.journal.topics import TopicRecord
from trueup.connectors.kafka.journal.transactions import Body, Signed
from trueup.state.common.errors import BadBytes, Stop
from trueup.state.settings.settings import JournalSettings
from trueup.streams.deletion.topics import DELETIONS
from trueup.streams.journal import channel
from trueup.streams.journal import topic as topics
from trueup.streams.journal.codec import encode
from trueup.streams.journal.journal import Journal
from trueup.streams.journal.signing import SIZE, SignatureScope, keys_of, signature, signer_of, verify
from trueup.streams.journal.topic import topic_of

KEY, OTHER = b"k" * 32, b"o" * 32
SETTING = {"name": "placement.mode", "value": '"approve"', "at_ms": 5, "by": "ada"}


class Broker:
    """The topics in memory."""

    def __init__(self) -> None:
        self.entries: list[TopicRecord] = []

    def send(self, parts: Iterable[tuple[str, Sequence[bytes], Sequence[Body]]], _within_s: float) -> None:
        for topic, keys, bodies in parts:
            for key, body in zip(keys, bodies, strict=True):
                headers = {body.name: body.value} if isinstance(body, Signed) else {}
                self.add(TopicRecord(key, None if isinstance(body, Signed) else body, topic, 0, 0, headers))

    def add(self, entry: TopicRecord) -> None:
        self.entries.append(entry._replace(offset=len(self.entries)))

    def read(self, topic: str, _last: int | None) -> Iterator[TopicRecord]:
        return (entry for entry in self.entries if entry.topic == topic)


class Announcer:
    """Writes the records of workers to a topic in memory."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._broker, self._topic = broker, topic

    def publish(self, _topic: str, key: bytes, body: bytes) -> None:
        self._broker.send([(self._topic, [key], [body])], 0)


@pytest.fixture
def broker() -> Broker:
    return Broker()


def journal(broker: Broker, root: Path, *keys: bytes, prefix: str = "trueup", cluster: str = "c") -> Journal:
    file = root / f"key-{len(list(root.iterdir()))}"
    file.write_bytes(b"\n".join(keys))
    made = Journal("127.0.0.1:1", JournalSettings(prefix=prefix, key_file=str(file) if keys else ""), cluster)
    made.topics = cast("Any", broker)
    return made


def read(journal: Journal, what: str = "config") -> tuple[list[Any], list[str]]:
    found = [record.value for record in journal.read(what)]
    return found, [bad.problem for bad in journal.unreadable.all()]


def order(value: str = '"approve"') -> tuple[str, bytes, dict[str, Any]]:
    return "config", b"placement.mode", {**SETTING, "value": value}


def test_a_signed_setting_is_read_with_its_key(broker: Broker, tmp_path: Path) -> None:
    made = journal(broker, tmp_path, KEY)
    made.put([order(), ("config", b"other", None)])
    assert read(made) == ([SETTING, None], [])


def test_a_reader_without_a_key_ignores_signatures(broker: Broker, tmp_path: Path) -> None:
    journal(broker, tmp_path, KEY).put([order(), ("config", b"other", None)])
    assert read(journal(broker, tmp_path)) == ([SETTING, None], [])


@pytest.mark.parametrize("keys", [(), (OTHER,)])
@pytest.mark.parametrize("value", [SETTING, None])
def test_a_record_without_a_valid_signature_is_refused(
    broker: Broker, tmp_path: Path, keys: tuple[bytes, ...], value: Any
) -> None:
    journal(broker, tmp_path, *keys).put([("config", b"placement.mode", value)])
    found, refused = read(journal(broker, tmp_path, KEY))
    assert (found, len(refused), "a signature of journal.key_file" in refused[0]) == ([], 1, True)


def test_a_deletion_of_anybody_deletes_nothing(broker: Broker, tmp_path: Path) -> None:
    made = journal(broker, tmp_path, KEY)
    made.put([order()])
    journal(broker, tmp_path).put([("config", b"placement.mode", None), ("config", b"\xff\0", None)])
    assert (list(made.newest("config").values()), len(made.unreadable)) == ([SETTING], 2)


@pytest.mark.parametrize("where", [{"prefix": "staging"}, {"cluster": "staging"}])
def test_a_record_of_another_journal_is_refused(broker: Broker, tmp_path: Path, where: dict[str, str]) -> None:
    other = journal(broker, tmp_path, KEY, **where)
    other.put([order(), ("config", b"placement.mode", None)])
    for entry in list(broker.entries):
        broker.add(entry._replace(topic="trueup.c.config"))
    found, refused = read(journal(broker, tmp_path, KEY))
    assert (found, len(refused)) == ([], 1)


def test_names_of_a_journal_that_are_joined_differently_are_another_journal() -> None:
    one, other = SignatureScope("a.b", "c", "config", b"k"), SignatureScope("a", "b.c", "config", b"k")
    with pytest.raises(BadBytes):
        verify([KEY], other, b"body" + signature(KEY, one, 1, b"body"), b"", "here")


@pytest.mark.parametrize("newest", [order('"observe"'), ("config", b"placement.mode", None)])
def test_an_older_record_that_is_written_again_is_refused(
    broker: Broker, tmp_path: Path, newest: tuple[str, bytes, Any]
) -> None:
    made = journal(broker, tmp_path, KEY)
    made.put([order()])
    made.put([newest])
    broker.add(broker.entries[0])
    late = journal(broker, tmp_path, KEY)
    wanted = [newest[2]] if newest[2] else []
    assert [list(late.newest("config").values()) for _ in range(2)] == [wanted] * 2
    (problem,) = late.unreadable.problems()
    assert "expected a record newer than the one at offset 1" in problem


def test_an_older_deletion_that_is_written_again_is_refused(broker: Broker, tmp_path: Path) -> None:
    made = journal(broker, tmp_path, KEY)
    made.put([("config", b"placement.mode", None)])
    made.put([order()])
    broker.add(broker.entries[0])
    assert list(journal(broker, tmp_path, KEY).newest("config").values()) == [SETTING]


def test_a_writer_whose_clock_is_late_is_read_after_what_it_has_read(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 10**18)
    journal(broker, tmp_path, KEY).put([order('"observe"')])
    monkeypatch.setattr(time, "time_ns", lambda: 10**17)
    late = journal(broker, tmp_path, KEY)
    late.newest("config")
    late.put([order()])
    assert list(journal(broker, tmp_path, KEY).newest("config").values()) == [SETTING]


def test_a_record_of_the_old_key_is_read_during_a_rotation(broker: Broker, tmp_path: Path) -> None:
    journal(broker, tmp_path, OTHER).put([order()])
    both = journal(broker, tmp_path, KEY, OTHER)
    both.newest("config")
    both.put([order()])
    assert (len(read(both)[0]), len(read(journal(broker, tmp_path, KEY))[0])) == (2, 1)


ROTATION = ((OTHER,), (OTHER, KEY), (KEY, OTHER), (KEY,))
"""The keys of an instance after each step of the rotation in docs/security.md, from the old one to the new one."""


@pytest.mark.parametrize(("before", "after"), [*pairwise(ROTATION)])
def test_instances_read_each_other_while_a_step_of_the_rotation_is_done(
    tmp_path: Path, before: tuple[bytes, ...], after: tuple[bytes, ...]
) -> None:
    for writer, reader in ((before, after), (after, before)):
        broker = Broker()
        journal(broker, tmp_path, *writer).put([order()])
        assert read(journal(broker, tmp_path, *reader))[1] == []


def test_a_forged_order_does_not_end_a_start_and_is_reported(broker: Broker, tmp_path: Path) -> None:
    broker.send([("trueup.c.deletions", [b"\0" * 8], [b"forged"])], 0)
    made = journal(broker, tmp_path, KEY)
    assert list(made.read(DELETIONS)) == []
    assert [bad.where for bad in made.unreadable.all()] == ["topic trueup.c.deletions partition 0 offset 0"]


PLACE = SignatureScope("trueup", "c", "config", b"key")


@pytest.mark.parametrize("body", [b"body", None])
def test_every_changed_byte_breaks_the_signature(body: bytes | None) -> None:
    made = (body or b"") + signature(KEY, PLACE, 7, body)

    def number(found: bytes) -> int:
        return verify([KEY], PLACE, None if body is None else found, found, "here")

    for at in range(len(made)):
        changed = made[:at] + bytes([made[at] ^ 1]) + made[at + 1 :]
        with pytest.raises(BadBytes):
            number(changed)
    assert number(made) == 7


def test_a_signature_of_a_deletion_is_none_of_an_empty_body() -> None:
    with pytest.raises(BadBytes):
        verify([KEY], PLACE, signature(KEY, PLACE, 7, None), b"", "here")


@pytest.mark.parametrize(("topic", "key"), [("memory", b"key"), ("config", b"kez"), ("configk", b"ey")])
def test_a_record_cannot_be_moved(topic: str, key: bytes) -> None:
    body = b"body" + signature(KEY, PLACE, 7, b"body")
    with pytest.raises(BadBytes):
        verify([KEY], PLACE._replace(topic=topic, key=key), body, b"", "here")


@pytest.mark.parametrize("body", [b"", b"x", b"x" * SIZE])
def test_a_short_body_is_refused(body: bytes) -> None:
    with pytest.raises(BadBytes):
        verify([KEY], PLACE, body, b"", "here")


@pytest.mark.parametrize("content", [b"", b"a-bad-key", KEY + b"\na-bad-key"])
def test_a_file_without_a_sufficient_key_is_refused_without_its_content(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(Stop, match="at least 32 characters") as found:
        keys_of(str(tmp_path / "key"))
    assert "a-bad-key" not in str(found.value)


def test_all_topics_are_signed_except_those_that_tasks_read_in_bulk() -> None:
    assert {name for name in TOPICS if topic_of(name).unsigned} == {"ledgers", "owners"}


def test_no_topic_with_columns_is_signed() -> None:  # `Journal.columns` verifies nothing
    assert [name for name in TOPICS if topic_of(name).columns and not topic_of(name).unsigned] == []


SIGNED = [name for name in TOPICS if not topic_of(name).unsigned]


def sound(what: str) -> tuple[bytes, Any]:
    """A record that the topic's writer could have made, and its key."""
    record = example(json.loads(topic_of(what).text)) | ({"name": "placement.mode"} if what == "config" else {})
    key = topic_of(what).key
    return (key(record) if key else b"key"), record


def forged(broker: Broker, root: Path, what: str, kind: str) -> None:
    """Write a record into the topic of ``trueup.c`` without its key, or one that was valid elsewhere."""
    key, record = sound(what)
    body, name = encode(what, record), f"trueup.c.{what}"
    match kind:
        case "unsigned":
            broker.send([(name, [key], [body])], 0)
        case "a deletion":
            broker.send([(name, [key], [None])], 0)
        case "the highest numbers":
            extreme = next(one for one in of(what) if one.kind == kind)
            broker.send([(name, [key], [extreme.body])], 0)
        case "another key":
            journal(broker, root, OTHER).send([(what, [key], [body])])
        case _:
            journal(broker, root, KEY, prefix="staging").send([(what, [key], [body])])
            broker.entries[-1] = broker.entries[-1]._replace(topic=name)


@pytest.mark.parametrize("what", SIGNED)
@pytest.mark.parametrize(
    "kind", ["unsigned", "a deletion", "the highest numbers", "another key", "one of another prefix"]
)
def test_a_forged_record_is_a_problem_with_its_place_and_changes_no_state(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, kind: str
) -> None:
    made = journal(broker, tmp_path, KEY)
    monkeypatch.setitem(topics._declared, what, topic_of(what)._replace(form=""))  # whose values are no example's
    key, record = sound(what)
    made.send([(what, [key], [encode(what, record)])])
    before = made.newest(what)
    forged(broker, tmp_path, what, kind)
    after = made.newest(what)
    (problem,) = made.unreadable.problems()
    where = f"topic trueup.c.{what} partition 0 offset 1"
    assert (after, list(after), where in problem) == (before, [key], True)


def test_a_report_of_a_worker_is_signed(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = journal(broker, tmp_path, KEY)
    monkeypatch.setitem(topics._declared, "reports", topic_of("reports")._replace(form=""))
    channel_, (key, record) = replace(made.channel("reports"), topic="reports of a test"), sound("reports")
    monkeypatch.setitem(channel._announcers, channel_, cast("Any", Announcer(broker, "trueup.c.reports")))
    channel.publish(channel_, key, encode("reports", record))
    assert [found.key for found in made.read("reports")] == [key]


def test_a_key_of_one_topic_signs_no_record_of_another() -> None:
    config, reports = (signer_of([KEY], "trueup", "c", what) for what in ("config", "reports"))
    body = b"body" + signature(reports.keys[0], config.place._replace(key=b"key"), 7, b"body")
    with pytest.raises(BadBytes):
        config.verify(b"key", body, b"", "here")


def test_no_text_of_a_signer_has_its_keys() -> None:
    signer = signer_of([KEY], "trueup", "c", "config")
    assert str(signer.keys[0]) not in repr(signer)
