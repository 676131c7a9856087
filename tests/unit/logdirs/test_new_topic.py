"""`trueup topic create` of a topic that exists."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.unit.logdirs.test_assignment import broker
from trueup.connectors.kafka.logdirs.client import DescribedBroker
from trueup.state.common.errors import Refused
from trueup.state.logdirs.settings import LogDirsSettings
from trueup.streams.logdirs.manager import LogDirsManager


class Client:
    """The brokers of a cluster, which hold topic t. Nothing may be changed."""

    def brokers(self) -> dict[int, str]:
        return {1: ""}

    def look(self, _: object) -> list[DescribedBroker]:
        return [DescribedBroker(1, broker(1, ("t", 0, 1, 1, 0, False)))]

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


def test_it_is_refused_before_a_directory_is_selected_which_would_move_its_replicas() -> None:
    manager = LogDirsManager(cast("Any", None), cast("Any", None), cast("Any", None), lambda: 0)
    policy = LogDirsSettings(mode="approve")
    manager.by_name["east"] = cast("Any", SimpleNamespace(policy=policy, client=Client()))
    with pytest.raises(Refused, match="a new topic on east; found t, which exists"):
        manager.create_topic("east", "t", 1, 1, {})
