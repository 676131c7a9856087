"""Results that are remembered for values in records."""

import pytest

from trueup.connectors.contract import Endpoint
from trueup.connectors.replication.headers import Path
from trueup.connectors.replication.remembered import LONGEST, MOST, BoundedCache
from trueup.connectors.rocketmq.replication.records.columns import Encoder


def test_a_result_is_remembered() -> None:
    remembered = BoundedCache[bytes, int]()
    assert (remembered.keep(b"a", 1, 5), remembered) == (5, {b"a": 5})


def test_no_more_than_the_limit_are_remembered() -> None:
    remembered = BoundedCache[int, int]()
    for key in range(MOST + 5):
        remembered.keep(key, 1, key)
    assert len(remembered) == MOST


def test_a_long_key_is_not_remembered() -> None:
    remembered = BoundedCache[bytes, int]()
    assert (remembered.keep(bytes(LONGEST + 1), LONGEST + 1, 5), remembered) == (5, {})


@pytest.mark.parametrize("value", [b"%d" % number for number in range(3)])
def test_a_path_of_a_record_is_the_same_when_it_is_remembered(value: bytes) -> None:
    path = Path(Endpoint("east", "e:9092", 0), Endpoint("west", "w:9092", 1), forward=True)
    assert path.onward(value) == path.onward(value) == value + b",east#0"


def test_names_that_every_record_changes_take_no_memory() -> None:
    encoder = Encoder()
    for number in range(MOST * 2):
        encoder._usual(None, [(f"name-{number}", b"x"), ("trueup-source", b"east"), ("trueup-offset", bytes(16))])
    assert (len(encoder._names), len(encoder._forms)) == (MOST, MOST)
