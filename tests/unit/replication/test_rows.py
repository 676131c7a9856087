"""What the rows of links say about several partitions."""

import pytest

from trueup.streams.replication.rows import lag


@pytest.mark.parametrize(
    ("partitions", "link"), [([3, 4], 7), ([0, 0], 0), ([3, -1], 3), ([-1, -1], -1), ([], -1)], ids=str
)
def test_the_lag_of_a_link_is_unknown_if_that_of_every_partition_is(partitions: list[int], link: int) -> None:
    assert lag(partitions) == link
