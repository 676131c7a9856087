"""Znodes that Pulsar 4.2.4 wrote to a real cluster: uncompressed and compressed (LZ4, ZSTD)."""

import pytest

from trueup.connectors.pulsar import codecs, compressed, messages, metadata
from trueup.connectors.pulsar.layout import PulsarPaths
from trueup.connectors.pulsar.metadata import ListedLedgers
from trueup.connectors.pulsar.nodes import pointers_of
from trueup.connectors.zookeeper.requests import Stat
from trueup.state.common.errors import BadBytes
from trueup.state.deletion.owners import SCHEMA, OwnerStatus, Pointers

TOPIC = "public/default/persistent/a%3Ab"
NODE = f"/managed-ledgers/{TOPIC}"
LEDGERS = (
    b"\n\x0e\x08\x02\x102\x18\xf8n \x81\xa2\xf4\x80\xa04\n\x0e\x08\x03\x102\x18\xf8n \x87\xa4\xf4\x80\xa04"
    b"\n\x04\x08\x04 \x00"
)
LEDGERS_LZ4 = (
    b"Gx\x00\x00\x00\x04\x08\x01\x10&\xf2\x05\n\x0e\x08\x02\x102\x18\xf8n \x97\x9d\xf6\x80\xa04\n\x0e\x08\x03\x10\x00"
    b"\xc0\xd8\x9d\xf6\x80\xa04\n\x04\x08\x04 \x00"
)
CURSOR = b"\x08\n\x10\x02\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x010\xdc\xab\xf4\x80\xa04"
CURSOR_ZSTD = (
    b"Gx\x00\x00\x00\x04\x08\x03\x10\x16(\xb5/\xfd$\x16\xa5\x00\x00p\x08\x08\x10\x02\x18\xff\x010\x91\xa1\xf6\x80\xa04"
    b"\x01\x00\x04(\x02\xbf\xd1\x1db"
)
CURSOR_IN_ITS_NODE = b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x10\x08\x18\x010\x8f\xad\xf4\x80\xa04"
CURSOR_WITH_BUCKETS = (
    b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x10\x02\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x010\xbf\xbf\xa7\x81"
    b"\xa04B(\n##pulsar.internal.delayed.bucket_3_3\x12\x017B(\n##pulsar.internal.delayed.bucket_2_2\x12\x015"
)
_HASH = b"t#N\x98\xaf\xe7I\x8f\xb5\xda\xf1\xf3j\xc2\xd7\x8a\xcc3\x94d\xf9Pp;\x8c\x01\x98\x92\xf9\x82\xb9\x0b"
_ENTRY = b"*\x08\x00\x12\x04\x08\t\x10\x00\x1a " + _HASH
LOCATOR = b"\n" + _ENTRY + b"\x12" + _ENTRY
STAT = Stat(1, 22, 3, 4, 5, 0, 0, 0, 0, 0, 0)


def node(path: str, data: bytes) -> Pointers | None:
    return pointers_of(PulsarPaths(), path, data, STAT, 99)


def unreadable(path: str, data: bytes) -> str:
    """The error of an unreadable node."""
    found = node(path, data)
    assert found is not None
    assert (found.status, found.ledgers, found.version, found.mzxid) == (OwnerStatus.UNREADABLE, (), 5, 22)
    return found.error


def test_a_managed_ledger_points_to_what_it_lists() -> None:
    assert node(NODE, LEDGERS) == Pointers(NODE, TOPIC, "", OwnerStatus.READABLE, 5, 22, 99, (2, 3, 4))


def test_a_compressed_managed_ledger_lists_the_same() -> None:
    assert metadata.managed_ledger(LEDGERS_LZ4, NODE) == ListedLedgers((2, 3, 4))


def test_a_managed_ledger_that_was_just_made_lists_nothing() -> None:
    made = pointers_of(PulsarPaths(), NODE, b"", STAT._replace(version=0), 99)
    assert made == Pointers(NODE, TOPIC, "", OwnerStatus.READABLE, 0, 22, 99)


def test_a_managed_ledger_that_lost_its_list_is_unreadable() -> None:
    assert "no data" in unreadable(NODE, b"")


def test_a_ledger_is_dropped_when_its_offloaded_copy_is_complete_and_the_other_counts_as_deleted() -> None:
    message = messages.ManagedLedger()
    for ledger, complete, deleted in [(9, True, True), (7, False, True), (8, True, False)]:
        info = message.ledgerInfo.add(ledgerId=ledger)
        info.offloadContext.complete, info.offloadContext.bookkeeperDeleted = complete, deleted
    assert metadata.managed_ledger(message.SerializeToString(), NODE) == ListedLedgers((7, 8, 9), (9,))


def shadow_of(source: bytes) -> bytes:
    """A topic that lists ledgers and was made a shadow of another one."""
    message = messages.ManagedLedger.FromString(LEDGERS)
    message.properties.add(key=metadata.SHADOW, value=source)
    return bytes(message.SerializeToString())


def test_a_ledger_that_is_listed_twice_does_not_end_the_read_of_its_topic() -> None:
    message = messages.ManagedLedger()
    message.ledgerInfo.add(ledgerId=7).offloadContext.uidMsb = 1
    message.ledgerInfo.add(ledgerId=7)
    assert [one.ledger for one in metadata.topic_ledgers(message.SerializeToString(), NODE)[0]] == [7, 7]


def test_a_shadow_topic_points_to_no_ledger_and_proves_nothing_about_those_of_its_name() -> None:
    found = node(NODE, shadow_of(b"persistent://public/default/source"))
    assert found is not None
    assert (found.status, found.ledgers, found.copies) == (OwnerStatus.SHADOW, (), ())
    assert "a shadow topic of persistent://public/default/source" in found.error


@pytest.mark.parametrize(("data", "own"), [(CURSOR, (10,)), (CURSOR_ZSTD, (8,)), (CURSOR_IN_ITS_NODE, ())])
def test_a_cursor_points_to_its_ledger_if_it_has_one(data: bytes, own: tuple[int, ...]) -> None:
    path = f"{NODE}/sub%2Fx"
    expected = Pointers(path, TOPIC, "sub%2Fx", OwnerStatus.READABLE, 5, 22, 99, own, (), elsewhere=bool(own))
    assert node(path, data) == expected


def test_a_cursor_points_to_the_ledgers_of_delayed_messages() -> None:
    path = f"{NODE}/sub%2Fx"
    expected = Pointers(path, TOPIC, "sub%2Fx", OwnerStatus.READABLE, 5, 22, 99, (5, 7))
    assert node(path, CURSOR_WITH_BUCKETS) == expected


def test_a_cursor_points_to_the_ledger_of_its_compaction_but_not_to_what_users_put_there() -> None:
    message = messages.Cursor(cursorsLedgerId=-1)
    message.properties.add(name=b"CompactedTopicLedger", value=36)
    message.properties.add(name=b"other", value=41)
    message.cursorProperties.add(name=b"of a user", value=b"42")
    assert metadata.cursor(message.SerializeToString(), NODE) == (ListedLedgers((36,)), False)


def test_a_schema_points_to_the_ledgers_of_its_versions() -> None:
    path = "/schemas/public/default/s"
    assert node(path, LOCATOR) == Pointers(path, f"{SCHEMA}public/default/s", "", OwnerStatus.READABLE, 5, 22, 99, (9,))


@pytest.mark.parametrize("path", ["/managed-ledgers/t", "/managed-ledgers/t/ns/persistent", "/schemas/t/ns"])
def test_nodes_that_only_lead_to_others_are_no_owners(path: str) -> None:
    assert node(path, b"") is None


@pytest.mark.parametrize(
    ("path", "data"),
    [
        (NODE, CURSOR),
        (f"{NODE}/sub", LEDGERS),
        (f"{NODE}/sub", b""),
        (f"{NODE}/sub/more", b"\0"),
        ("/managed-ledgers/somewhere/else", LEDGERS),
        ("/schemas/t/ns/a", CURSOR),
        ("/schemas/t/ns/a", LOCATOR[:-1]),
        (NODE, LEDGERS[:-1]),
        (NODE, b"\n\x0b\x08" + b"\xff" * 9 + b"\x01"),
        (NODE, b"\n\x02\x10\x05"),
        (
            f"{NODE}/sub",
            messages.Cursor(
                cursorsLedgerId=1, cursorProperties=[{"name": metadata.BUCKET, "value": b"9" * 19}]
            ).SerializeToString(),
        ),
    ],
)
def test_invalid_data_are_unreadable_and_reported_with_their_place(path: str, data: bytes) -> None:
    assert f"of {path};" in unreadable(path, data)


def test_damage_is_named_by_its_byte() -> None:
    assert f"at byte 17 of {NODE};" in unreadable(NODE, LEDGERS[:17] + b"\x7f" + LEDGERS[18:])


def test_damage_within_a_compressed_node_is_named_as_such() -> None:
    assert f"at byte 0 of {NODE}, decompressed;" in unreadable(NODE, compressed.closed(CURSOR, codecs.ZLIB))


@pytest.mark.parametrize(
    "data",
    [
        b"Gx",
        b"Gx\x00\x00\x00\x09\x08\x01\x10&",
        b"Gx\xff\xff\xff\xff\x08\x01\x10&",
        b"Gx\x00\x00\x00\x02\x08\x01",
        b"Gx\x00\x00\x00\x04\x08\x05\x10\x01a",
        b"Gx\x00\x00\x00\x03\x08\x01\x7f",
        LEDGERS_LZ4[:-1],
        CURSOR_ZSTD[:-1],
    ],
)
def test_a_broken_wrapper_is_refused(data: bytes) -> None:
    with pytest.raises(BadBytes):
        compressed.opened(data, NODE)


@pytest.mark.parametrize("codec", [codecs.LZ4, codecs.ZLIB, codecs.ZSTD, codecs.SNAPPY])
@pytest.mark.parametrize("claimed", [10, 2**31 - 1])
def test_more_bytes_than_the_header_declares_are_not_decompressed(codec: int, claimed: int) -> None:
    head = messages.Wrapper(compressionType=codec, uncompressedSize=claimed).SerializeToString()
    body = compressed.closed(bytes(1 << 24), codec)[
        6 + len(messages.Wrapper(compressionType=codec, uncompressedSize=1 << 24).SerializeToString()) :
    ]
    with pytest.raises(BadBytes):
        compressed.opened(b"Gx" + len(head).to_bytes(4, "big") + head + body, NODE)


def test_text_that_is_damaged_is_named_by_its_byte() -> None:
    text = b"ledgerInfo {\n  ledgerId: 5\n}\nledgerInfo {\n  ledgerId: x\n}\n"
    assert f"at byte {text.index(b'x')} of {NODE};" in unreadable(NODE, text)


def test_fields_of_newer_versions_do_no_harm() -> None:
    newer = b"\xa2\x06\x03new"  # field 100
    assert metadata.managed_ledger(LEDGERS + newer, NODE) == ListedLedgers((2, 3, 4))


@pytest.mark.parametrize(
    "data",
    [
        b"ledgerInfo: {ledgerId: 1} " + b"x:1\n" * (1 << 18),
        b"ledgerInfo: {ledgerId: 1} " + b"x:1 " * (1 << 12),
        b"\x78\x01" * (1 << 20),
        b"\x0a\x02\x08\x01" * 200_001,
        compressed.closed(b"\x0a\x00" * (1 << 21), 3),
    ],
    ids=["long text", "long line", "unknown fields", "ledgers", "damage in what is compressed"],
)
def test_a_node_that_takes_long_to_parse_is_unreadable_in_a_short_error(data: bytes) -> None:
    assert len(unreadable(NODE, data)) < 1_000
