"""Links in the world: log clusters of Kafka and RocketMQ, and the links between them."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from tests.configuration import parse
from tests.simulation.instances import Current, Leader, Process
from tests.simulation.link_checkers import LinkCheckers
from tests.simulation.linking import LinkParts, Links, OrderedJournal, declared, settled
from tests.simulation.logs import LARGE, LogClusters
from tests.simulation.part import Part, Surroundings
from trueup.state.common.errors import TrueupError
from trueup.state.replication.settings import LinkSettings

CALM = 2


class LinkStream:
    """The links of one leader."""

    def __init__(self, links: Links, checkers: Current, part: "LinkPart") -> None:
        self.links, self._checkers, self._part = links, checkers, part
        self.over = False
        """Whether the links rest, because the checks of links have ended."""

    def depose(self) -> None:
        """Another process leads from now on."""
        self._checkers.over = True

    def queue(self) -> None:
        """The links look themselves."""

    def step(self) -> None:
        """One iteration. Raises `Crash`."""
        if not self.over:
            self._part.clusters.arrive()
            self.links.step()

    def close(self) -> None:
        """The process ended; its workers may go on for a while."""
        self._part.silent_ms = self.links.clock()
        self.links.die()


class LinkPart(Part):
    """Producers, consumers and operators of log clusters, and the links that copy between them. A process is not
    stopped in the middle of a lease, which other processes hold."""

    name = "links"
    halts = False

    def __init__(self, around: Surroundings, parts: LinkParts) -> None:
        super().__init__(around)
        self.parts, self.raw = parts, declared(self.rng)
        self.clusters = LogClusters(self.world)
        self.declared: Mapping[str, LinkSettings] = parse(self.raw).table(LinkSettings)
        named = {name: asdict(one) for name, one in self.declared.items()}
        self.checkers = LinkCheckers(self.clusters, self.log, named)
        self._names, self._calm, self._deleted = sorted(self.declared), 0, False
        self._steps = 0
        self.silent_ms = 0
        """The last time at which a process that crashed may have granted a lease."""
        self._done = False

    def sections(self) -> Mapping[str, Any]:
        return self.raw

    @property
    def links(self) -> Links | None:
        """The links of the present leader."""
        found: LinkStream | None = self.around.stream(self.name)
        return found.links if found is not None else None

    def begin(self, process: Process, leader: Leader, _made: Callable[[str], Any]) -> LinkStream:
        current: Any = Current(self.checkers)
        journal = OrderedJournal(self.log, leader.faults, leader.journal.epoch)
        journal.fenced = leader.journal.fenced
        silent_ms = max(leader.silent_ms, self.silent_ms)
        links = Links(leader.live, journal, self.clusters, leader.faults, leader.clock, current, self.parts, silent_ms)
        links.load()
        return LinkStream(links, current, self)

    def advanced(self) -> None:
        self.clusters.arrive()
        self.checkers.scan()

    @property
    def ahead_ms(self) -> int:
        return self.clusters.ahead_ms

    def happen(self) -> None:
        for _ in range(self.rng.randint(0, 5)):
            self.clusters.happen()
        if self.rng.random() < 0.4:
            self._operate()

    def _operate(self) -> None:
        link, rng, links = self.rng.choice(self._names), self.rng, self.links
        if links is None or self.around.leader is None:
            return
        name, value = rng.choice(
            (
                ("mode", rng.choice(("enforce", "enforce", "approve", "observe"))),
                ("paused", rng.random() < 0.3),
                ("paused_topics", rng.choice(([], ["orders"]))),
                ("exclude", rng.choice(([], [], ["bills"]))),
                ("mode", None),
                ("paused", None),
                ("approve", None),
                ("command", None),
                ("command", None),
                ("reset", None),
            )
        )
        with self.around.crashes(self.around.leader):
            if name == "approve":
                links.approve()
            elif name == "command":
                self._execute(links, rng.choice(links.recommended() or [""]))
            elif name == "reset":
                if rng.random() < 0.2:
                    to = rng.choice(("earliest", "latest"))
                    self._execute(links, f"trueup link reset {link} --to {to} --yes")
            else:
                self.world.note(f"{link}.{name} is set to {value}")
                links.set(f"links.{link}.{name}", value)

    def _execute(self, links: Links, command: str) -> None:
        if command:
            try:
                links.execute(command)
            except TrueupError as error:
                self.world.note(f"refused: {error}")

    # The end

    def end_faults(self) -> None:
        self.clusters.end()
        self._create_named()
        self._deleted = self.rng.random() < 0.4

    def _restore(self, links: Links) -> None:
        """An operator sets all links to work."""
        for name in self._names:
            for key, value in (("mode", "enforce"), ("paused", False), ("paused_topics", [])):
                # The value of the file is restored by the deletion of the record.
                same = getattr(self.declared[name], key) == value
                links.set(f"links.{name}.{key}", None if same else value)

    def calm(self) -> None:
        links = self.links
        if links is None or self._done:
            return
        if not self._steps:
            self._restore(links)
        self._steps += 1
        self.clusters.end()  # also for a topic that a link creates with the settings that it saw before
        rows = links.rows()
        self._calm = self._calm + 1 if settled(rows) else 0
        if self._calm > CALM and not self._deletes():
            self.checkers.complete(self._names)
            self._done = self.around.stream(self.name).over = True
        elif self._steps % 3 == 2:
            self._leave(links)

    def quiet(self) -> bool:
        return self._done

    def counted(self) -> Mapping[str, int]:
        return {"copied": self.checkers.copied}

    def left(self) -> str:
        links = self.links
        if links is None or self._done:
            return ""
        shown = [(row["link"], row["state"], row["lag_records"], row["reason"] or row["error"]) for row in links.rows()]
        return f"no command leads out of {shown}; {links.recommended()}"

    def _deletes(self) -> bool:
        """Delete a topic that a link copied, once in some runs. Returns whether one is deleted."""
        copied = sorted({(place[0], place[1].topic) for place in self.checkers.positions})
        if self._deleted or not copied:
            return False
        self._deleted = True
        name, topic = self.rng.choice(copied)
        source = self.checkers.source(name)
        if topic in source.topics:
            source.delete(topic)
            self.clusters.replaced.add((source.name, topic))
            self.world.note(f"{source.name}: {topic} is deleted")
        return topic not in source.topics

    def _leave(self, links: Links) -> None:
        """Execute the recommended commands."""
        for command in links.recommended():
            self._execute(links, command)

    def _create_named(self) -> None:
        """Create the topics that links name and that never existed at their sources, and one for a link without any
        topic: no command is shown for these."""
        copied = {(place[0], place[1].topic) for place in self.checkers.positions}
        for name in self._names:
            source = self.checkers.source(name)
            named = [topic for topic in self.checkers.setting(name, "topics") if topic[0] != "/"]
            if not named and not any(self.checkers.includes(name, topic) for topic in source.topics):
                named = ["orders"]
            for topic in named:
                known = (name, topic) in copied and self.rng.random() < 0.5
                if topic not in source.topics and not known:
                    source.create(topic, 1, LARGE)
                    self.world.note(f"{source.name}: {topic} is created")
