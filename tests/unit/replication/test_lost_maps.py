"""Translation after an offset map was lost or lags behind the position of its copy."""

import pytest

from tests.replication.links import LOG, copied
from tests.unit.replication.test_link import ZERO, Rig
from trueup.streams.replication.links.group_maps import mappings
from trueup.streams.replication.links.link import Link


@pytest.fixture
def rig() -> Rig:
    """A link that copied 1,000 records of each partition."""
    rig = Rig()
    rig.round(1000, 1000, target_end=1000)
    return rig


def translated(rig: Rig, offset: int, *others: Link) -> int | None:
    """The translation of a source offset of partition 0."""
    return mappings(rig.link, [rig.link, *others])[ZERO].translate(offset)[0].offset


def without_map(rig: Rig) -> Rig:
    """The link after a restart without the records of the offset map of partition 0."""
    for key in [key for key in rig.journal.taken if key[0] == "offsets" and key[1].startswith(b"east-west/orders-0/")]:
        del rig.journal.taken[key]
    rig.link = rig.restarted()
    return rig


@pytest.mark.parametrize("more", [(), (1010, 1010)], ids=["nothing copied since", "copied since"])
def test_before_the_position_at_which_its_map_was_lost_an_offset_has_no_translation(
    rig: Rig, more: tuple[int, ...]
) -> None:
    without_map(rig).round(*more, target_end=1010)
    assert translated(rig, 500) is None


def test_from_the_position_at_which_its_map_was_lost_an_offset_is_translated(rig: Rig) -> None:
    without_map(rig).round(1010, 1010, target_end=1010)
    assert [translated(rig, offset) for offset in (1001, 1010)] == [1001, 1010]


def test_a_group_does_not_pass_records_of_another_link_whose_map_was_lost(rig: Rig) -> None:
    without_map(rig).round(1010, 1010, target_end=1010)
    link, writer, home = copied("east-west", (0, 2000, 10)), copied("north-west"), copied("north-east", (0, 0, 10))
    writer.copies[LOG] = rig.link.copies[ZERO]
    assert mappings(link, [link, writer, home])[LOG].translate(8)[0].offset is None


def test_before_a_position_that_replaces_one_that_was_not_readable_an_offset_has_no_translation(rig: Rig) -> None:
    del rig.journal.taken["links", b"east-west/orders-0"]
    rig.link = rig.restarted(unreadable={ZERO: "expected a signature"})
    rig.link.orders()
    rig.link.reset({ZERO: 1000}, "latest")
    for end in (1000, 1000, 1010):
        rig.round(end, end, target_end=end)
    assert [translated(rig, offset) for offset in (500, 1010)] == [None, 1010]


def lagging(rig: Rig) -> Rig:
    """The link after a restart with a position past the end of the offset map in the journal, and a lease."""
    older = {key: value for key, value in rig.journal.taken.items() if key[0] == "offsets"}
    rig.round(2000, 2000, target_end=2000)
    rig.journal.taken |= older
    rig.link = rig.restarted()
    rig.round(2010, 2010, target_end=2010)
    return rig


@pytest.mark.parametrize("opposite", [False, True], ids=["alone", "with an opposite link"])
def test_where_the_map_lagged_behind_the_position_no_unread_record_is_passed_over(rig: Rig, opposite: bool) -> None:
    back = copied("west-east", until=2010)
    assert translated(lagging(rig), 1500, *([back] if opposite else [])) == 1000
