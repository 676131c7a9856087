"""What the rows of links say about several partitions."""

import pytest

from tests.unit.cli.fake_rows import link_row
from trueup.state.replication.verdicts import PartitionStage
from trueup.streams.replication.report import total
from trueup.streams.replication.signs import LinkFields

COPYING, GONE = PartitionStage.COPYING, PartitionStage.GONE


@pytest.mark.parametrize(
    ("partitions", "link"), [([3, 4], 7), ([0, 0], 0), ([3, -1], -1), ([-1, -1], -1), ([], -1)], ids=str
)
def test_the_lag_of_a_link_is_unknown_if_that_of_any_partition_is(partitions: list[int], link: int) -> None:
    assert total((COPYING, left) for left in partitions) == link


def test_a_topic_that_is_gone_has_nothing_to_copy() -> None:
    assert (total([(COPYING, 3), (GONE, -1)]), total([(GONE, -1)])) == (3, -1)


def test_the_age_of_a_link_is_that_of_its_oldest_record() -> None:
    assert total([(COPYING, 3), (COPYING, 9)], max) == 9


@pytest.mark.parametrize(("lags", "shown"), [([3, 4], {"lag records": 7}), ([3, -1], {}), ([], {})], ids=str)
def test_the_chart_of_a_lag_has_a_gap_where_it_is_unknown(lags: list[int], shown: dict[str, int]) -> None:
    fields = LinkFields.of({"links": [link_row("east-west", lag_records=lag) for lag in lags]})
    assert {name: n for name, n in fields.trends().items() if name == "lag records"} == shown
