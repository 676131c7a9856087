"""Signed records of the journal: forged ones are not read."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from trueup.connectors.kafka.journal.topics import Entry
from trueup.state.common.errors import BadBytes, Stop, TrueupError
from trueup.state.settings.settings import JournalSettings
from trueup.streams.catalog import sections
from trueup.streams.deletion.topics import MARKERS
from trueup.streams.journal.instances import INSTANCES
from trueup.streams.journal.journal import Journal, Record
from trueup.streams.journal.signing import SIZE, keys_of, signed, verify
from trueup.streams.journal.topic import declared

KEY, OTHER = b"k" * 32, b"o" * 32
SETTING = {"name": "placement.mode", "value": '"approve"', "at_ms": 5, "by": "ada"}


class Broker:
    """The topics in memory."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def send(self, parts: Iterable[tuple[str, list[bytes], list[bytes | None]]], _within_s: float) -> None:
        for topic, keys, bodies in parts:
            for key, body in zip(keys, bodies, strict=True):
                self.entries.append(Entry(topic=topic, partition=0, offset=len(self.entries), key=key, body=body))

    def read(self, topic: str, _last: int | None) -> Iterator[Entry]:
        return (entry for entry in self.entries if entry.topic == topic)


@pytest.fixture
def broker() -> Broker:
    return Broker()


def journal(broker: Broker, root: Path, *keys: bytes) -> Journal:
    file = root / f"key-{len(list(root.iterdir()))}"
    file.write_bytes(b"\n".join(keys))
    made = Journal("127.0.0.1:1", JournalSettings(key_file=str(file) if keys else ""), "c")
    made.topics = cast("Any", broker)
    return made


def read(journal: Journal, what: str = "config") -> tuple[list[Any], list[str]]:
    refused: list[str] = []

    def bad(record: Record, error: TrueupError) -> None:
        refused.append(f"{record.where}: {error.expected}")

    return [record.value for record in journal.read(what, bad=bad)], refused


def test_a_signed_setting_is_read_with_its_key(broker: Broker, tmp_path: Path) -> None:
    made = journal(broker, tmp_path, KEY)
    made.put([("config", b"placement.mode", SETTING), ("config", b"other", None)])
    assert read(made) == ([SETTING, None], [])


def test_a_reader_without_a_key_ignores_signatures(broker: Broker, tmp_path: Path) -> None:
    journal(broker, tmp_path, KEY).put([("config", b"placement.mode", SETTING)])
    assert read(journal(broker, tmp_path)) == ([SETTING], [])


@pytest.mark.parametrize("keys", [(), (OTHER,)])
def test_a_record_without_a_valid_signature_is_refused(broker: Broker, tmp_path: Path, keys: tuple[bytes, ...]) -> None:
    journal(broker, tmp_path, *keys).put([("config", b"placement.mode", SETTING)])
    found, refused = read(journal(broker, tmp_path, KEY))
    assert (found, len(refused), "a signature of journal.key_file" in refused[0]) == ([], 1, True)


def test_a_record_of_the_old_key_is_read_during_a_rotation(broker: Broker, tmp_path: Path) -> None:
    journal(broker, tmp_path, OTHER).put([("config", b"placement.mode", SETTING)])
    both = journal(broker, tmp_path, KEY, OTHER)
    both.put([("config", b"placement.mode", SETTING)])
    assert (len(read(both)[0]), len(read(journal(broker, tmp_path, KEY))[0])) == (2, 1)


def test_a_forged_order_does_not_end_a_start_and_is_reported(broker: Broker, tmp_path: Path) -> None:
    broker.send([("trueup.c.markers", [b"\0" * 8], [b"forged"])], 0)
    made = journal(broker, tmp_path, KEY)
    assert (list(made.read(MARKERS)), list(made.unsigned)) == ([], ["topic trueup.c.markers partition 0 offset 0"])


def test_every_changed_byte_breaks_the_signature() -> None:
    body = signed([KEY], "config", b"key", b"body")
    for at in range(len(body)):
        changed = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
        with pytest.raises(BadBytes):
            verify([KEY], "config", b"key", changed, "here")
    verify([KEY], "config", b"key", body, "here")


@pytest.mark.parametrize(("topic", "key"), [("memory", b"key"), ("config", b"kez"), ("configk", b"ey")])
def test_a_record_cannot_be_moved(topic: str, key: bytes) -> None:
    with pytest.raises(BadBytes):
        verify([KEY], topic, key, signed([KEY], "config", b"key", b"body"), "here")


@pytest.mark.parametrize("body", [b"", b"x", b"x" * SIZE])
def test_a_short_body_is_refused(body: bytes) -> None:
    with pytest.raises(BadBytes):
        verify([KEY], "config", b"key", body, "here")


@pytest.mark.parametrize("content", [b"", b"a-bad-key", KEY + b"\na-bad-key"])
def test_a_file_without_a_sufficient_key_is_refused_without_its_content(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(Stop, match="at least 32 characters") as found:
        keys_of(str(tmp_path / "key"))
    assert "a-bad-key" not in str(found.value)


def test_settings_and_orders_are_signed() -> None:
    assert sections()  # imports the topics of all streams
    names = {topic.name for topic in declared() if topic.signed}
    assert names == {"config", INSTANCES, "repairs", "markers", "strays", "changes", "priorities", "memory"}
