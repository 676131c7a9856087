"""Mutation tests of the simulation of log directories: the intended checker detects each planted defect."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import trueup.state.logdirs.verdicts as verdicts
import trueup.streams.logdirs.executor as executor
import trueup.streams.logdirs.reconciler as reconciler
from tests.simulation.logdirs_part import LogDirsParts
from tests.simulation.planted import complaint
from tests.simulation.simulation import Parts
from trueup.connectors.kafka.logdirs.client import MoveOutcome
from trueup.state.logdirs.model import Broker
from trueup.state.logdirs.plan import Balance, Move
from trueup.state.logdirs.settings import LogDirsSettings
from trueup.state.logdirs.verdicts import Decision, OwnChanges
from trueup.streams.logdirs.executor import DirectoryBalancer
from trueup.streams.logdirs.manager import LogDirsManager

LOGDIRS = ("logdirs",)


class ForgetfulManager(LogDirsManager):
    """Loads no changes of earlier runs."""

    def load(self) -> None:
        super().load()
        for dirs in self.by_name.values():
            dirs.balancer.ours.clear()


def in_force(**policy: Any) -> Callable[..., Decision]:
    """Decides by a policy other than the one in force."""

    def decided(broker: Broker, given: LogDirsSettings, *rest: Any) -> Decision:
        return DECIDE(broker, replace(given, **policy), *rest)

    return decided


DECIDE = verdicts.decide


def after_the_act(self: DirectoryBalancer, broker: int, ours: OwnChanges) -> None:
    """Writes changes to the journal in the next pass."""
    before = getattr(self, "late", {}).get(broker)
    if before is not None:
        self._keep(broker, before)
    self.ours[broker] = ours
    self.late: dict[int, OwnChanges] = {**getattr(self, "late", {}), broker: ours}  # type: ignore[attr-defined]


def claiming(_requests: Any, _broker: Broker, _ours: OwnChanges, cordon: frozenset[str] | None) -> Any:
    """Takes every cordon for one of Trueup."""
    return None if cordon is None else executor.CordonChange(cordon, frozenset())


def replacing(_requests: Any, broker: Broker, ours: OwnChanges, cordon: frozenset[str] | None) -> Any:
    """Replaces the setting without reading it."""
    others = executor._others(broker, ours)
    return None if cordon is None else executor.CordonChange(cordon - others, cordon & others)


def kept_throttle(policy: LogDirsSettings, ours: OwnChanges, starting: bool, now_set: int) -> int | None:
    """Never removes a throttle."""
    return THROTTLE(policy, ours, starting, now_set) or 0


THROTTLE = verdicts._throttle


def foreign_throttle(policy: LogDirsSettings, ours: OwnChanges, starting: bool, now_set: int) -> int | None:
    """Takes every throttle for one of Trueup."""
    return THROTTLE(policy, ours._replace(throttles=ours.throttles | ({now_set} - {0})), starting, now_set)


def always(_broker: Broker, moves: tuple[Move, ...], policy: Balance) -> list[Move]:
    """Starts moves of the plan whatever the directories are."""
    return list(moves[: policy.at_once])


def abandoned(_self: DirectoryBalancer, *given: Any) -> tuple[OwnChanges, list[MoveOutcome]]:
    """Sends no moves."""
    return given[2], []


def bold(policy: LogDirsSettings, *_given: Any) -> bool:
    """Orders moves without approval."""
    return policy.mode != "observe" and not policy.paused


def unapproved(broker: Broker, policy: LogDirsSettings, ours: OwnChanges, steer: frozenset[str]) -> Any:
    """Cordons without approval."""
    mode = "enforce" if policy.mode == "approve" else policy.mode
    return CORDON(broker, replace(policy, mode=mode), ours, steer)


CORDON = verdicts._cordon


def test_a_process_that_forgets_its_changes_is_caught() -> None:
    found = complaint("remain", Parts(logdirs=LogDirsParts(manager=ForgetfulManager)), LOGDIRS)
    assert re.search("remain", found), found


@pytest.mark.parametrize(
    ("owner", "name", "defect", "says"),
    [
        (reconciler, "decide", in_force(mode="enforce"), "observe"),
        (reconciler, "decide", in_force(paused=False), "True"),
        (reconciler, "decide", in_force(headroom_share=0.0, headroom_bytes=0), "leaves"),
        (reconciler, "decide", in_force(at_once=9), "at once"),
        (reconciler, "decide", in_force(throttle_bytes_per_s=0), "without a throttle"),
        (verdicts, "_may", bold, "not approved"),
        (verdicts, "_cordon", unapproved, "not approved"),
        (verdicts, "_throttle", kept_throttle, "throttle"),
        (verdicts, "_throttle", foreign_throttle, "another client was changed"),
        (verdicts, "startable", always, "cordoned|during a move|offline|at once"),
        (executor, "_cordon_change", replacing, "another client"),
        (executor, "_cordon_change", claiming, "another client"),
        (DirectoryBalancer, "_remember", after_the_act, "remain"),
        (DirectoryBalancer, "_order", abandoned, "not quiet|do not begin"),
    ],
)
def test_a_defect_of_log_directories_is_caught(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, defect: Callable[..., Any], says: str
) -> None:
    monkeypatch.setattr(owner, name, defect)
    found = complaint(says, None, LOGDIRS)
    assert re.search(says, found), found
