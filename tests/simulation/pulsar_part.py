"""Pulsar in the world: brokers and their object store, policies of read priority, and what Trueup does about them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.simulation.deleting import Deleting, DeletionCheckpoint, DeletionParts
from tests.simulation.deletion_checkers import DeletionCheckers
from tests.simulation.instances import Current, Leader, Process
from tests.simulation.part import Part, Surroundings
from tests.simulation.placing import Placing
from tests.simulation.priorities import Priorities, PriorityParts
from tests.simulation.priority_checkers import DECLARED, SETTLE_LOOKS, SETTLE_S, STALL_LOOKS, PriorityCheckers
from tests.simulation.pulsar import NAMESPACES, OWNERS, TOPICS, Brokers
from tests.simulation.store import Bucket, Policies
from trueup.state.deletion.lifecycle import DeletionStage
from trueup.state.deletion.settings import DeletionSettings
from trueup.state.read_priority.settings import ReadPrioritySettings
from trueup.streams.config.live import LiveSection

CALM = 12
"""Hours until all work must be done."""
HOUR_MS = 3_600_000
GRACE_S = 6.0


@dataclass
class PulsarParts:
    """The classes under test; tests of the simulation replace them by defective ones."""

    deletion: DeletionParts = field(default_factory=DeletionParts)
    priorities: PriorityParts = field(default_factory=PriorityParts)


class PulsarStreams:
    """Deletion and read priorities of one leader."""

    def __init__(self, deleting: Deleting, priorities: Priorities, checkers: Sequence[Current]) -> None:
        self.deleting, self.priorities, self._checkers = deleting, priorities, checkers

    def depose(self) -> None:
        """Another process leads from now on."""
        for each in self._checkers:
            each.over = True

    def queue(self) -> None:
        """The capture notices changes itself."""

    def step(self) -> None:
        """One iteration of both. Raises `Crash`."""
        self.deleting.step()
        self.priorities.step()

    def close(self) -> None:
        """The process ended."""


class PulsarPart(Part):
    """Topics that create, offload and forget ledgers, and the tiers that brokers read first."""

    name = "pulsar"
    rounds = 3

    def __init__(self, around: Surroundings, parts: PulsarParts) -> None:
        super().__init__(around)
        rng = self.rng
        self.parts, self.checkpoint = parts, DeletionCheckpoint()
        self.brokers = Brokers(self.world, Bucket(rng))
        self.brokers.on_drop = self._without_policy
        self.policies = Policies(rng, NAMESPACES, TOPICS)
        self.checkers = DeletionCheckers(self.brokers, self.log)
        self.priority_checkers = PriorityCheckers(self.brokers, self.policies)
        self.policy = DeletionSettings(
            owners="pulsar",
            instance="x",
            exclusive=True,
            mode=rng.choice(("enforce", "enforce", "approve")),
            grace_s=GRACE_S,
            confirm_s=1,
            retry_s=1,
            missing_s=0,
        )
        self.chosen = ReadPrioritySettings(
            admin=["http://b"],
            mode="enforce",
            declared=DECLARED,
            stall_looks=STALL_LOOKS,
            settle_looks=SETTLE_LOOKS,
            settle_s=SETTLE_S,
            unload=rng.random() < 0.5,
        )
        self._until_ms = 0

    def _without_policy(self, topic: str) -> None:
        """A broker deletes the policy of a topic with it."""
        self.policies.stored.pop(topic, None)
        self.policies.delayed.pop(topic, None)

    @property
    def streams(self) -> PulsarStreams | None:
        """The streams of the present leader."""
        found: PulsarStreams | None = self.around.stream(self.name)
        return found

    def begin(self, process: Process, leader: Leader, made: Callable[[str], Any]) -> PulsarStreams:
        placing: Placing = made("placement")
        current: Any = Current(self.checkers)
        priority: Any = Current(self.priority_checkers)
        policy, chosen = LiveSection(lambda: self.policy), LiveSection(lambda: self.chosen)
        deleting = Deleting(
            policy,
            leader,
            self.brokers,
            self.checkpoint,
            current,
            self.parts.deletion,
            lambda: placing.keeper.first_epoch,
        )
        priorities = Priorities(chosen, leader, self.brokers, self.policies, priority, self.parts.priorities)
        deleting.load()
        priorities.load()
        return PulsarStreams(deleting, priorities, [current, priority])

    def taken_over(self) -> None:
        self.checkpoint = DeletionCheckpoint()
        self.checkers.forgotten()

    def compacted(self) -> None:
        self.taken_over()
        self.checkpoint.lose(self.log)

    def happen(self) -> None:
        for _ in range(self.rng.randint(1, 4)):
            self.brokers.step()
        if self.rng.random() < 0.05:
            self.brokers.bucket.restore()
        if self.rng.random() < 0.05:
            self.policies.interfere(self.rng.choice((*NAMESPACES, *TOPICS)))
        self._spoil()
        self._operate()

    def _spoil(self) -> None:
        """The copy of a ledger is damaged just before the ledger is deleted."""
        streams = self.streams
        for deletion in streams.deleting.reconciler.deletions.values() if streams else ():
            if deletion.stage is DeletionStage.MARKED and self.rng.random() < 0.04:
                self.brokers.spoil_copy(deletion.owner, deletion.ledger)

    def _operate(self) -> None:
        """An operator changes settings, and approves what waits."""
        rng = self.rng
        self.policy = replace(self.policy, paused=rng.random() < 0.2)
        if rng.random() < 0.05:
            self.policy = replace(self.policy, mode=rng.choice(("observe", "approve", "enforce", "enforce")))
        if rng.random() < 0.05:
            self.chosen = replace(self.chosen, mode=rng.choice(("observe", "approve", "enforce")))
        if rng.random() < 0.3:
            self._approve()

    def _approve(self) -> None:
        streams, leader = self.streams, self.around.leader
        if streams is None or leader is None:
            return
        if self.chosen.mode == "approve":
            streams.priorities.approve(lambda _: self.rng.random() < 0.5)
        with self.around.crashes(leader):
            streams.deleting.approve(self.policy.mode == "approve", self.policy.mode != "observe")

    def end_faults(self) -> None:
        rng, world = self.rng, self.world
        for bookie in [bookie for bookie in world.bookies.values() if bookie.state == "down"]:
            world.start(bookie.id)
        for number in [number for number, ledger in world.ledgers.items() if ledger.unreadable]:
            world.ledgers[number].unreadable = False
            world.save(world.ledgers[number])
        for owner in OWNERS:
            self.brokers.list_next(owner)
        self.policy = replace(self.policy, paused=False, mode=rng.choice(("enforce", "approve")))
        self.chosen = replace(self.chosen, mode="enforce")
        self._until_ms = world.now_ms + CALM * HOUR_MS

    def calm(self) -> None:
        self._approve()

    def quiet(self) -> bool:
        return self.world.now_ms >= self._until_ms

    def counted(self) -> Mapping[str, int]:
        checkers = self.checkers
        return {
            "deleted": len(checkers.deleted),
            "confirmed": checkers.ends[DeletionStage.CONFIRMED],
            "removed": checkers.removed,
            "policies": self.priority_checkers.writes,
        }

    def ended(self) -> None:
        assert self.streams is not None, "the process goes on"
        deleting = self.streams.deleting
        self.priority_checkers.settled(self.streams.priorities.reconciler.kept)
        self.checkers.settled_objects(deleting.orphans.reconciler)
        self.checkers.settled(deleting.reconciler)
