"""Assignment of the partitions of a new topic."""

from collections import Counter

import pytest

from trueup.state.common.errors import Refused
from trueup.state.logdirs.assignment import seats
from trueup.state.logdirs.model import Broker, LogDir, Row, replicas
from trueup.state.logdirs.settings import PARTITION, SIZE

GB = 1 << 30
NO_RACKS = {1: "", 2: "", 3: ""}
DIRS = (LogDir("/a", 100 * GB, 20 * GB), LogDir("/b", 300 * GB, 40 * GB))


def broker(number: int, *rows: Row, dirs: tuple[LogDir, ...] = DIRS) -> Broker:
    return Broker(number, dirs, replicas(rows))


def test_size_shares_a_topic_out_by_usable_bytes() -> None:
    found = seats([broker(1)], NO_RACKS, 6, 1, SIZE)
    assert Counter(path for ((_, path),) in found) == {"/a": 2, "/b": 4}


def test_partition_shares_it_out_by_number() -> None:
    found = seats([broker(1, ("t", 0, 1, 1, 0, False), ("t", 1, 1, 1, 0, False))], NO_RACKS, 4, 1, PARTITION)
    assert Counter(path for ((_, path),) in found) == {"/a": 3, "/b": 1}


def test_a_cordoned_directory_and_an_excluded_one_get_nothing() -> None:
    shut = (*DIRS, LogDir("/c", 900 * GB, 900 * GB, cordoned=True))
    found = seats([broker(1, dirs=shut)], NO_RACKS, 3, 1, SIZE, ["/b"])
    assert {path for ((_, path),) in found} == {"/a"}


def test_replicas_of_a_partition_are_on_brokers_of_their_own_and_in_other_racks() -> None:
    racks = {1: "/x", 2: "/x", 3: "/y", 4: "/y"}
    found = seats([broker(number) for number in racks], racks, 8, 2, SIZE)
    assert all(len({racks[id_] for id_, _ in row}) == 2 for row in found)


def test_leaders_and_followers_are_shared_out_evenly() -> None:
    found = seats([broker(number) for number in (1, 2, 3)], NO_RACKS, 6, 2, SIZE)
    assert [Counter(row[at][0] for row in found) for at in (0, 1)] == [{1: 2, 2: 2, 3: 2}] * 2


def test_a_broker_with_few_replicas_comes_first() -> None:
    full = broker(1, ("t", 0, 0, 1, 0, False))
    assert seats([full, broker(2)], NO_RACKS, 1, 1, SIZE)[0][0][0] == 2


def test_more_replicas_than_brokers_are_refused() -> None:
    with pytest.raises(Refused, match="at least 2 brokers"):
        seats([broker(1)], NO_RACKS, 1, 2, SIZE)
