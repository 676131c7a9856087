import pytest

from tests.unit.rocketmq.stored_messages import Message
from trueup.connectors.rocketmq.protocol.stored import decode
from trueup.state.common.errors import BadBytes

WHOLE = Message().encoded()


def test_an_id_names_the_broker_and_the_place_in_its_log() -> None:
    found = decode(memoryview(Message().encoded()), "here")
    assert found.message_id(0) == "00010203" + "00002A9F" + "0000000000001000"


def test_no_bytes_are_no_messages() -> None:
    assert len(decode(memoryview(b""), "here")) == 0


@pytest.mark.parametrize(
    ("at", "value", "place"),
    [
        (0, b"\x00\x00\x00\x05", 0),
        (0, b"\xff\xff\xff\xff", 0),
        (0, b"\x7f\xff\xff\xff", 0),
        (4, b"\0\0\0\0", 4),
        (8, b"\x01\x02\x03\x04", 8),
        (84, b"\x7f\xff\xff\xff", 84),
        (84, b"\xff\xff\xff\xff", 84),
        (92, b"\xff", 92),
        (99, b"\x7f\xff", 99),
        (99, b"\xff\xff", 99),
    ],
)
def test_a_number_that_cannot_be_is_refused_with_its_place(at: int, value: bytes, place: int) -> None:
    damaged = bytearray(WHOLE * 2)
    second = len(WHOLE)
    damaged[second + at : second + at + len(value)] = value
    with pytest.raises(BadBytes) as refusal:
        decode(memoryview(damaged), "here")
    assert (refusal.value.where, refusal.value.at) == ("here", second + place)


def test_a_body_that_changed_is_refused() -> None:
    with pytest.raises(BadBytes, match="CRC"):
        decode(memoryview(Message().encoded().replace(b"body", b"bodi")), "here")


def test_a_message_that_ends_early_is_refused() -> None:
    with pytest.raises(BadBytes, match="size of a message"):
        decode(memoryview(WHOLE[:-1]), "here")
