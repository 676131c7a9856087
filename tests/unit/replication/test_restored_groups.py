"""Group offsets after a refill. The next links do not copy restored records, because their targets have copies from
before the loss. The new maps of these links do not contain these copies."""

from dataclasses import replace
from typing import Any

import pytest

from tests.replication.links import LOG, copied
from tests.unit.replication.test_refill import ZERO, Rig
from trueup.connectors.contract import Position
from trueup.state.replication.offset_map import OffsetMap
from trueup.state.replication.provenance import Refill
from trueup.streams.replication.links.checkpoints import Copy
from trueup.streams.replication.links.group_maps import mappings

LACKS = "before offset 6, the end of the refilled records"
COPIES = "before offset 40, where the map of link west-east begins"


@pytest.fixture
def rig() -> Rig:
    """West refills east. Another link copies from east to south."""
    rig = Rig(("east-west", "west-east", "east-south"))
    rig.lose()
    return rig


def restored(name: str, until: int) -> Any:
    """A link that restored the records before an offset of its target."""
    link = copied(name, (0, 0, 10))
    link.copies[LOG].restored = until
    return link


def based(link: Any, base: int) -> Any:
    """The link after a reset, at which its target had copies of earlier records before an offset."""
    link.copies[LOG].map = replace(link.copies[LOG].map, base=base)
    return link


def found(link: Any, *others: Any, offset: int) -> tuple[int | None, str]:
    return mappings(link, [link, *others])[LOG].translate(offset)[0]


@pytest.mark.parametrize(("offset", "expected"), [(5, (None, LACKS)), (6, (46, "")), (8, (48, ""))])
def test_the_next_link_translates_offsets_from_the_end_of_the_restored_records_on(
    offset: int, expected: tuple[int | None, str]
) -> None:
    link = copied("east-south", (6, 46, 4))
    assert found(link, restored("west-east", 6), offset=offset) == expected


def test_an_offset_past_the_copied_ones_is_not_translated_if_restored_records_follow_them() -> None:
    assert found(copied("east-south", until=3), restored("west-east", 6), offset=8) == (None, LACKS)


def test_while_a_refill_copies_the_next_link_translates_nothing() -> None:
    refill = restored("west-east", 0)
    refill.copies[LOG].refill = Refill(5, 10)
    link = copied("east-south", (6, 46, 4))
    assert found(link, refill, offset=8) == (None, "link west-east refills the log")


def test_the_link_back_to_the_source_of_a_refill_translates_offsets_of_restored_records() -> None:
    assert found(copied("east-west", until=10), restored("west-east", 6), offset=5) == (5, "")


@pytest.mark.parametrize(("offset", "expected"), [(8, (None, COPIES)), (40, (40, ""))])
def test_a_group_that_may_not_have_read_earlier_copies_is_not_moved_to_where_they_came_from(
    offset: int, expected: tuple[int | None, str]
) -> None:
    link = copied("east-west", (0, 0, 50), until=50)
    assert found(link, based(copied("west-east", until=50), 40), offset=offset) == expected


@pytest.mark.parametrize(("base", "expected"), [(-1, 8), (20, None)], ids=["whole", "begun anew since"])
def test_a_link_that_restored_the_earlier_copies_translates_offsets_before_them(
    base: int, expected: int | None
) -> None:
    link = based(restored("east-west", 10), base)
    assert found(link, based(copied("west-east", until=50), 40), offset=8)[0] == expected


def test_a_refill_leaves_the_end_of_what_it_restored_to_the_next_run(rig: Rig) -> None:
    rig.fill()
    rig.begin()
    assert [copy.restored for _, copy in sorted(rig.copies("west-east").items())] == [200, 500]


def test_a_cancelled_refill_restored_no_record_past_the_end_of_its_target(rig: Rig) -> None:
    rig.world.logs["east"][ZERO] = (0, 70)
    rig.look()
    rig.reset("west-east", "latest")
    assert rig.copies("west-east")[ZERO].restored == 70


def test_a_log_that_is_lost_again_contains_no_restored_record(rig: Rig) -> None:
    rig.fill()
    rig.world.lose("E3", {"orders": "newest o", "bills": "newest b"})
    rig.look()
    rig.reset("west-east", "latest")
    assert rig.copies("west-east")[ZERO].restored == 0


@pytest.mark.parametrize("name", ["east-west", "east-south"], ids=["restarted by the refill", "reset"])
def test_a_map_that_begins_anew_knows_where_the_earlier_copies_end(rig: Rig, name: str) -> None:
    rig.fill()
    if name == "east-south":
        rig.reset(name, "earliest")
    assert rig.copies(name)[ZERO].map.base == 500


@pytest.mark.parametrize(
    ("source_id", "end", "expected"),
    [("", 3, (0, 20)), ("", 10, (1, -1)), ("t", 3, (1, -1))],
    ids=["lost without an id", "nothing lost", "shorter with the same id"],
)
def test_the_map_of_a_source_without_ids_that_lost_copied_records_begins_again(
    source_id: str, end: int, expected: tuple[int, int]
) -> None:
    copy = Copy(LOG, LOG, 0, Position(10), OffsetMap().extend([(0, 0, 10)], 10, 0), source_id=source_id)
    copy.set(0, "earliest", (source_id, ""), (end, 20))
    assert (len(copy.map), copy.map.base) == expected


def test_a_map_of_a_target_that_lost_the_earlier_copies_has_none(rig: Rig) -> None:
    assert rig.copies("west-east")[ZERO].map.base == -1
