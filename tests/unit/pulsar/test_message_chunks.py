"""Chunks are joined as Pulsar's consumer does it."""

from typing import Any

import pytest

from tests.unit.pulsar.pulsar_entries import encoded, read
from trueup.connectors.pulsar import codecs
from trueup.connectors.pulsar.protocol.chunks import Chunks
from trueup.connectors.pulsar.protocol.message import Message
from trueup.state.common.errors import BadBytes

CONTENT = b"0123456789" * 30


def chunks_of(count: int, codec: int = codecs.NONE, name: str = "a", entry: int = 0, **given: Any) -> list[Message]:
    """The chunks of one message, in entries from ``entry`` on."""
    whole = codecs.compressed(CONTENT, codec)
    step = -(-len(whole) // count)
    fields = {
        "uuid": name.encode(),
        "num_chunks_from_msg": count,
        "total_chunk_msg_size": len(whole),
        "compression": codec,
        "uncompressed_size": len(CONTENT),
        **given,
    }
    found = [read(encoded(whole[at * step : (at + 1) * step], chunk_id=at, **fields))[0] for at in range(count)]
    return [message._replace(entry=entry + at) for at, message in enumerate(found)]


def added(chunks: Chunks, *messages: Message) -> list[Message]:
    return [whole for message in messages if (whole := chunks.add(message)) is not None]


@pytest.mark.parametrize("codec", range(5))
def test_the_last_chunk_completes_a_message(codec: int) -> None:
    chunks, parts = Chunks("topic t"), chunks_of(3, codec, entry=10)
    assert added(chunks, *parts) == [parts[-1]._replace(value=CONTENT, chunk=None)]
    assert (chunks.dropped, chunks.repeated, chunks.oldest) == (0, 0, None)


def test_chunks_of_several_messages_can_alternate() -> None:
    chunks = Chunks("topic t")
    a, b = chunks_of(2, name="a"), chunks_of(2, name="b", entry=5)
    assert [m.entry for m in added(chunks, a[0], b[0], b[1], a[1])] == [6, 1]


def test_a_message_without_chunks_passes() -> None:
    message = read(encoded(b"x"))[0]
    assert Chunks("topic t").add(message) is message


def test_an_encrypted_chunk_passes() -> None:
    message = chunks_of(2, encryption_keys=[b"\n\x01k"])[0]
    assert message.chunk is not None
    assert Chunks("topic t").add(message) is message


def test_a_repeated_chunk_is_ignored() -> None:
    chunks, (first, second, third) = Chunks("topic t"), chunks_of(3)
    assert len(added(chunks, first, second, second, third)) == 1
    assert (chunks.repeated, chunks.dropped) == (1, 0)


def test_another_first_chunk_starts_again() -> None:
    chunks, again = Chunks("topic t"), chunks_of(3, entry=4)
    assert [m.value for m in added(chunks, *chunks_of(3)[:2], *again)] == [CONTENT]
    assert (chunks.repeated, chunks.dropped) == (0, 2)


def test_a_message_with_a_missing_chunk_is_dropped() -> None:
    chunks, parts = Chunks("topic t"), chunks_of(4)
    assert added(chunks, parts[0], parts[2], parts[1], parts[3]) == []
    assert (chunks.dropped, chunks.oldest) == (4, None)


def test_chunks_without_the_first_one_are_dropped() -> None:
    chunks = Chunks("topic t")
    assert added(chunks, *chunks_of(3)[1:]) == []
    assert chunks.dropped == 2


def test_the_oldest_of_too_many_messages_is_dropped() -> None:
    chunks = Chunks("topic t", messages=2)
    each = [chunks_of(2, name=name, entry=at * 10) for at, name in enumerate("abc")]
    assert added(chunks, *(parts[0] for parts in each)) == []
    assert (chunks.dropped, chunks.oldest) == (1, (7, 10))
    assert [m.entry for m in added(chunks, *(parts[1] for parts in each))] == [11, 21]


def test_the_oldest_is_dropped_when_there_are_too_many_bytes() -> None:
    chunks = Chunks("topic t", size=len(CONTENT))
    a, b = chunks_of(3, name="a"), chunks_of(3, name="b", entry=5)
    assert [m.entry for m in added(chunks, a[0], b[0], a[1], b[1], a[2], b[2])] == [7]
    assert chunks.dropped == 3


def test_a_message_that_can_never_fit_displaces_no_other() -> None:
    chunks = Chunks("topic t", size=len(CONTENT))
    small, large = chunks_of(2, name="a"), chunks_of(2, name="b", total_chunk_msg_size=len(CONTENT) + 1)
    assert [m.chunk for m in added(chunks, small[0], *large, small[1])] == [None]
    assert chunks.dropped == 2


def test_chunks_that_are_not_as_long_as_announced_are_damage() -> None:
    chunks, parts = Chunks("topic t"), chunks_of(2, total_chunk_msg_size=5)
    chunks.add(parts[0])
    with pytest.raises(BadBytes, match="5 bytes in 2 chunks at byte 0 of topic t, entry 1 of ledger 7; found 300"):
        chunks.add(parts[1])


def test_joined_chunks_that_cannot_be_decompressed_are_damage() -> None:
    chunks, parts = Chunks("topic t"), chunks_of(2, codecs.ZSTD)
    chunks.add(parts[0])
    with pytest.raises(BadBytes, match="the payload of topic t, entry 1 of ledger 7"):
        chunks.add(parts[1]._replace(value=bytes(len(parts[1].value or b""))))
