"""The copy path of a link whose settings exclude the path that it had."""

import pytest

from tests.unit.replication.test_link import Rig
from trueup.state.replication.anomalies import PathChoice


@pytest.mark.parametrize("setting", [{"transform": "mask:record"}, {"failures": "dead-letter"}])
def test_a_path_that_refuses_the_settings_is_left_at_the_positions_of_the_journal(setting: dict[str, str]) -> None:
    before = Rig()
    before.round(10, 20)
    after = Rig(dead_letter_topic="letters", **setting)
    after.journal = before.journal
    after.link = after.restarted()
    after.link.update(choice=PathChoice("records", "transform processes every record"))
    orders = after.link.orders()
    found = [(order.lease.path, each.position.offset) for order in orders for each in order.lease.assignments]
    assert found == [("records", 10), ("records", 20)]
