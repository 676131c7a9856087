import pytest

from trueup.sandbox.messages import MessagesReadback, compare, payload

TOPIC = "public/default/one"


@pytest.mark.parametrize(("number", "size"), [(0, 24), (7, 256), (10**12, 64)])
def test_what_was_written_is_recognised(number: int, size: int) -> None:
    assert compare(TOPIC, [payload(TOPIC, number, size)]) == MessagesReadback((number,))


def test_messages_of_another_topic_are_incorrect() -> None:
    assert compare(TOPIC, [payload(TOPIC, 1), payload("another", 2)]) == MessagesReadback((1,), incorrect=1)


@pytest.mark.parametrize(
    "content", [b"", b"3", b":", b"-1:x", b"x:y", payload(TOPIC, 3)[:-1], payload(TOPIC, 3) + b"x"]
)
def test_damaged_messages_are_incorrect(content: bytes) -> None:
    assert compare(TOPIC, [content]) == MessagesReadback((), incorrect=1)


def test_what_is_missing_is_named() -> None:
    assert MessagesReadback((3, 1, 1)).missing(range(5)) == [0, 2, 4]
