"""Pulsar's znodes: every format is decoded, damage is reported, and declared sizes are not trusted."""

from typing import Any

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from trueup.connectors.pulsar import codecs, compressed, messages, metadata
from trueup.connectors.pulsar.layout import PulsarPaths
from trueup.connectors.pulsar.metadata import ListedLedgers
from trueup.connectors.pulsar.nodes import pointers_of
from trueup.connectors.zookeeper.requests import Stat
from trueup.state.common.errors import BadBytes
from trueup.state.deletion.owners import OwnerStatus

WHERE = "/managed-ledgers/t/ns/persistent/a"
ids = st.integers(0, 2**62)
forms = st.sampled_from([None, codecs.NONE, codecs.LZ4, codecs.ZLIB, codecs.ZSTD, codecs.SNAPPY])
flags = st.sampled_from([None, (False, False), (True, False), (False, True), (True, True)])
words = st.text("abcXYZ%+-_", min_size=1, max_size=8).map(str.encode)


def form(message: Any, codec: int | None) -> bytes:
    data = message.SerializeToString()
    return data if codec is None else compressed.closed(data, codec)


@st.composite
def managed_ledgers(draw: Any) -> tuple[Any, ListedLedgers]:
    drawn = draw(st.dictionaries(ids, flags, max_size=8))
    message = messages.ManagedLedger()
    for ledger, offloaded in drawn.items():
        info = message.ledgerInfo.add(ledgerId=ledger, entries=draw(ids), size=draw(ids), timestamp=draw(ids))
        if offloaded:
            info.offloadContext.complete, info.offloadContext.bookkeeperDeleted = offloaded
        info.properties.add(key=draw(words), value=draw(words))
    message.properties.add(key=draw(words), value=draw(words))
    dropped = sorted(ledger for ledger, offloaded in drawn.items() if offloaded == (True, True))
    return message, ListedLedgers(tuple(sorted(drawn)), tuple(dropped))


@st.composite
def cursors(draw: Any) -> tuple[Any, tuple[ListedLedgers, bool]]:
    own, compacted = draw(st.one_of(st.just(-1), ids)), draw(st.one_of(st.none(), ids))
    buckets = draw(st.lists(ids, max_size=3))
    message = messages.Cursor(cursorsLedgerId=own, markDeleteLedgerId=draw(ids), markDeleteEntryId=-1)
    ends = message.individualDeletedMessages.add()
    for end in (ends.lowerEndpoint, ends.upperEndpoint):
        end.ledgerId, end.entryId = draw(ids), draw(ids)
    message.properties.add(name=b"other", value=draw(ids))
    if compacted is not None:
        message.properties.add(name=metadata.COMPACTED, value=compacted)
    for at, bucket in enumerate(buckets):
        message.cursorProperties.add(name=metadata.BUCKET + b"_%d_9" % at, value=b"%d" % bucket)
    message.cursorProperties.add(name=b"mine", value=b"7")
    found = {own, *buckets, -1 if compacted is None else compacted} - {-1}
    return message, (ListedLedgers(tuple(sorted(found))), own >= 0)


@given(managed_ledgers(), forms)
def test_managed_ledgers_come_back_in_every_form(drawn: tuple[Any, ListedLedgers], codec: int | None) -> None:
    message, listed = drawn
    assert metadata.managed_ledger(form(message, codec), WHERE) == listed


@given(cursors(), forms)
def test_cursors_come_back_in_every_form(drawn: tuple[Any, Any], codec: int | None) -> None:
    message, listed = drawn
    assert metadata.cursor(form(message, codec), WHERE) == listed


@given(managed_ledgers(), cursors())
def test_text_of_old_versions_is_read(ledger: tuple[Any, ListedLedgers], cursor: tuple[Any, Any]) -> None:
    read = metadata.managed_ledger(text_format.MessageToBytes(ledger[0]), WHERE)
    assert (read, metadata.cursor(text_format.MessageToBytes(cursor[0]), WHERE)) == (ledger[1], cursor[1])


@given(ids, st.lists(ids, max_size=5))
def test_schemas_point_to_the_ledgers_of_all_versions(newest: int, older: list[int]) -> None:
    message = messages.Schema()
    entries = [(newest, message.info), *((ledger, message.index.add()) for ledger in older)]
    for at, (ledger, entry) in enumerate(entries):
        entry.version, entry.hash, entry.position.ledgerId, entry.position.entryId = at, b"h", ledger, 0
    assert metadata.schema(message.SerializeToString(), WHERE) == ListedLedgers(tuple(sorted({newest, *older})))


@given(cursors(), forms)
def test_a_cursor_never_passes_for_a_managed_ledger(drawn: tuple[Any, Any], codec: int | None) -> None:
    with pytest.raises(BadBytes):
        metadata.managed_ledger(form(drawn[0], codec), WHERE)


@given(managed_ledgers(), forms, st.integers(0, 1 << 16), st.binary(min_size=1, max_size=3))
def test_damage_is_nothing_but_unreadable(drawn: Any, codec: int | None, at: int, put: bytes) -> None:
    data = bytearray(form(drawn[0], codec))
    place = at % (len(data) + 1)
    data[place : place + len(put)] = put
    stat = Stat(1, 2, 3, 4, 5, 0, 0, 0, len(data), 0, 0)
    node = pointers_of(PulsarPaths(), WHERE, bytes(data), stat, 6)
    assert node is not None
    assert (node.status, bool(node.error)) in [(OwnerStatus.READABLE, False), (OwnerStatus.UNREADABLE, True)]


@given(
    st.sampled_from([codecs.LZ4, codecs.ZLIB, codecs.ZSTD, codecs.SNAPPY]),
    st.binary(max_size=300),
    st.integers(-(2**31), 2**31 - 1),
)
def test_a_header_that_lies_about_the_size_is_refused(codec: int, message: bytes, size: int) -> None:
    reported = messages.Wrapper(compressionType=codec, uncompressedSize=len(message)).SerializeToString()
    lied = messages.Wrapper(compressionType=codec, uncompressedSize=size).SerializeToString()
    body = compressed.closed(message, codec)[6 + len(reported) :]
    data = b"\x47\x78" + len(lied).to_bytes(4, "big") + lied + body
    if size == len(message):
        assert compressed.opened(data, WHERE)[0] == message
        return
    with pytest.raises(BadBytes):
        compressed.opened(data, WHERE)
