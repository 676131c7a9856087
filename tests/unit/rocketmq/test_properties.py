import pytest

from trueup.connectors.rocketmq.protocol.properties import MOST, decoded, encoded, without
from trueup.state.common.errors import Stop

STRIPPED = without({"DELAY", "REAL_TOPIC", "CLUSTER"})


@pytest.mark.parametrize(
    ("raw", "left"),
    [
        (b"DELAY\x013\x02a\x011\x02", b"a\x011\x02"),
        (b"a\x011\x02DELAY\x013\x02", b"a\x011\x02"),
        (b"a\x011\x02DELAY\x013", b"a\x011\x02"),
        (b"DELAY\x013\x02CLUSTER\x01x\x02REAL_TOPIC\x01\x02", b""),
        (b"XDELAY\x013\x02DELAYED\x014\x02a\x01DELAY\x02", b"XDELAY\x013\x02DELAYED\x014\x02a\x01DELAY\x02"),
    ],
)
def test_only_the_named_properties_are_removed(raw: bytes, left: bytes) -> None:
    assert STRIPPED.sub(b"", raw) == left


@pytest.mark.parametrize("properties", [{"a\x01": "1"}, {"a": "1\x02"}, {"a\x02b\x01": ""}])
def test_a_separator_in_a_property_is_refused(properties: dict[str, str]) -> None:
    with pytest.raises(Stop, match="without separators"):
        encoded(properties)


def test_properties_that_are_too_long_are_refused() -> None:
    assert len(encoded({"a": "x" * (MOST - 3)})) == MOST
    with pytest.raises(Stop, match=f"{MOST}"):
        encoded({"a": "x" * (MOST - 2)})


def test_the_last_separator_may_be_missing() -> None:
    assert decoded(b"a\x011\x02b\x012") == {"a": "1", "b": "2"}


def test_a_part_without_a_value_is_ignored() -> None:
    assert decoded(b"nothing\x02a\x01\x02\x02") == {"a": ""}
