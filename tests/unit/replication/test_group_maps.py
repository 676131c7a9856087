"""The maps of several links that a group offset is translated with."""

from typing import Any

import pytest

from tests.replication.links import LOG, copied, fake_link
from trueup.connectors.contract import LogId
from trueup.state.replication.offset_map import OffsetMap
from trueup.streams.replication.links.checkpoints import Copy
from trueup.streams.replication.links.group_maps import mappings, mappings_back

NOTHING: Any = fake_link("north-west", ("north", "west"))
ELSEWHERE = "link north-west also copies to orders-0, and not all of its records come to orders-0"


@pytest.fixture
def link() -> Any:
    """Ten records of east, of which the target has five before five other records, and five after them."""
    return copied("east-west", (0, 0, 5), (5, 10, 5), until=10)


def found(link: Any, *others: Any, offset: int = 8) -> tuple[int | None, str]:
    offset_there, reason = mappings(link, [link, *others])[LOG].translate(offset)[0]
    return offset_there, reason


def stopped(link: Any) -> Any:
    link.copies[LOG].exclude("replication.source-lost-records")
    return link


def recreated(link: Any, **ids: str) -> Any:
    for name, value in ids.items():
        setattr(link.copies[LOG], name, value)
    return link


def test_one_link_alone_continues_after_what_was_read(link: Any) -> None:
    assert found(link) == (13, "")


def test_a_group_does_not_pass_a_record_of_another_link_that_has_not_come_to_the_source(link: Any) -> None:
    writer, home = copied("north-west", (0, 5, 5)), copied("north-east", until=0)
    assert found(link, writer, home) == (5, "it may not have read the next record of link north-west there")


def test_the_records_that_follow_it_are_counted(link: Any) -> None:
    writer, home = copied("north-west", (0, 5, 5)), copied("north-east", until=0)
    assert mappings(link, [link, writer, home])[LOG].translate(8)[1] == 13 - 5


def test_records_of_another_link_that_were_read_at_the_source_hold_no_group_back(link: Any) -> None:
    writer, home = copied("north-west", (0, 5, 5), until=20), copied("north-east", (0, 0, 5), until=20)
    assert found(link, writer, home) == (13, "")


@pytest.mark.parametrize(
    ("writer", "expected"),
    [
        (copied("north-west", (0, 5, 5)), (None, ELSEWHERE)),
        (copied("north-west", (0, 5, 5), mode="observe"), (None, ELSEWHERE)),
        (NOTHING, (None, ELSEWHERE)),
        (fake_link("north-west", ("north", "west"), mode="observe"), (13, "")),
        (copied("north-east", (0, 5, 5)), (13, "")),
    ],
)
def test_a_log_to_which_another_link_copies_records_that_the_source_lacks_has_no_translation(
    link: Any, writer: Any, expected: tuple[int | None, str]
) -> None:
    assert found(link, writer) == expected


@pytest.mark.parametrize(
    ("writer", "home", "reason"),
    [
        (copied("north-west"), stopped(copied("north-east")), "the partition is stopped in link north-east"),
        (stopped(copied("north-west")), copied("north-east"), "the partition is stopped in link north-west"),
        (
            recreated(copied("north-west"), source_id="new"),
            recreated(copied("north-east"), source_id="old"),
            "the partition is stopped in link north-east",
        ),
        (NOTHING, copied("north-east"), "link north-west copied nothing yet"),
        (copied("north-west"), fake_link("north-east", ("north", "east")), "link north-east copied nothing yet"),
        (copied("north-west", forward=True), copied("north-east"), ELSEWHERE),
    ],
)
def test_without_the_maps_of_the_other_links_there_is_no_translation(
    link: Any, writer: Any, home: Any, reason: str
) -> None:
    assert found(link, writer, home) == (None, reason)


def test_where_the_opposite_link_is_stopped_nothing_unread_is_passed_over(link: Any) -> None:
    assert found(link, stopped(copied("west-east"))) == (None, "the partition is stopped in link west-east")


def test_where_the_opposite_link_pairs_other_queues_nothing_unread_is_passed_over(link: Any) -> None:
    opposite = copied("west-east")
    opposite.copies = {LOG: Copy(LOG, LogId("orders", 1), 0)}
    assert found(link, opposite) == (None, "link west-east copies orders-0 to orders-1")


@pytest.mark.parametrize(
    ("mode", "expected"), [("enforce", (None, "link west-east copied nothing yet")), ("observe", (13, ""))]
)
def test_an_opposite_link_that_has_not_begun_counts_if_it_may_write(
    link: Any, mode: str, expected: tuple[int | None, str]
) -> None:
    opposite = fake_link("west-east", ("west", "east"), mode=mode)
    opposite.copies = {}
    assert found(link, opposite) == expected


@pytest.mark.parametrize(("forward", "expected"), [(True, 8), (False, None)])
def test_the_way_back_needs_the_records_of_the_other_links(forward: bool, expected: int | None) -> None:
    link = copied("east-west", (0, 0, 10), forward=forward)
    back = mappings_back(link, [link, copied("north-east", (0, 5, 5))])[LOG]
    assert back.translate(8)[0].offset == expected


def test_offsets_of_a_log_to_which_several_logs_are_copied_are_not_translated_back(link: Any) -> None:
    other = LogId("invoices", 0)
    link.copies[other] = Copy(other, LOG, 0, map=OffsetMap().extend([(0, 5, 5)], 5, 0))
    reason = "several logs of the source are copied to orders-0"
    assert mappings_back(link, [link])[LOG].translate(8)[0] == (None, reason)
