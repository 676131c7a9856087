"""Groups that move between the clusters of several topologies, compared with the records that they read."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from hypothesis import example, given
from hypothesis import strategies as st

from tests.replication.links import LOG, fake_link
from trueup.streams.replication.links.checkpoints import Copy
from trueup.streams.replication.links.group_maps import mappings, mappings_back

TWO, MESH, RING_WITH_ONE_BACK = "ab ba", "ab ac ba bc ca cb", "ab bc+ ca+ cb"
TOPOLOGIES = (
    *(TWO, "ab+ ba+", MESH, "ab+ bc+ ca+", "ab+ bc+ cd+ da+", RING_WITH_ONE_BACK, "ab ba cb bc", "ab+ ba+ cb+ bc+"),
    *("ab cb ca", "ab cb", "ab bc", "ab+ bc+", "ab"),
)
"""Links, each as source, target, and ``+`` if it forwards."""
FORGETS = {"forget", "forget all but the last"}
MOVES = ["write", "copy", "report", *sorted(FORGETS)]
Move = tuple[str, int, int]
"""What happens, at which cluster or link, and with how many records."""


class Entry(NamedTuple):
    """A record in a log, and the clusters that it passed."""

    record: tuple[str, int]
    passed: frozenset[str]


class World:
    """Clusters with one log each, and links between them."""

    def __init__(self, topology: str) -> None:
        self.topology = topology
        self.logs: dict[str, list[Entry]] = {name: [] for name in sorted({*topology} - {*" +"})}
        self.links = [fake_link(name[:2], (name[0], name[1]), name.endswith("+")) for name in topology.split()]
        self.at: dict[str, int] = defaultdict(int)
        self.unreported: dict[str, list[tuple[int, int, int]]] = defaultdict(list)

    def run(self, moves: Iterable[Move]) -> None:
        for what, number, count in moves:
            if what == "write":
                cluster = [*self.logs][number % len(self.logs)]
                log = self.logs[cluster]
                log += [Entry((cluster, len(log) + each), frozenset()) for each in range(count)]
            else:
                self._copy(self.links[number % len(self.links)], what, count)

    def _copy(self, link: Any, what: str, count: int) -> None:
        source, target = link.name
        runs, log = self.unreported[link.name], self.logs[target]
        for entry in self.logs[source][self.at[link.name] :][:count]:
            if target not in entry.passed and (link.declared.forward or not entry.passed):
                runs.append((self.at[link.name], len(log), 1))
                log.append(Entry(entry.record, entry.passed | {source}))
            self.at[link.name] += 1
        if what == "copy":
            return
        known = {"report": runs, "forget": runs[::2], "forget all but the last": runs[-1:]}[what]
        copy: Copy = link.copies[LOG]
        copy.map = copy.map.extend(known, self.at[link.name], 0, len(log), len(known) == len(runs))
        self.unreported[link.name] = []

    def finish(self) -> None:
        """Every link copies and reports everything."""
        for _ in range(len(self.links) + 2):
            self.run(("report", number, 10_000) for number in range(len(self.links)))

    def reaches(self, origin: str, cluster: str) -> bool:
        """Whether records produced at ``origin`` come to ``cluster``."""
        other = World(self.topology)
        other.run([("write", [*other.logs].index(origin), 1)])
        other.finish()
        return any(entry.record[0] == origin for entry in other.logs[cluster])

    def unread(self, link: Any, read: set[tuple[str, int]]) -> list[int]:
        """The offsets at the target of a link of records that a group, which read those at the source, must still
        read: all that links copied, and those produced there if they come to the source."""
        source, target = link.name
        own = self.reaches(target, source)
        log = enumerate(self.logs[target])
        return [at for at, entry in log if entry.record not in read and (entry.passed or own)]


moves = st.lists(st.tuples(st.sampled_from(MOVES), st.integers(0, 5), st.integers(1, 6)), max_size=40)
topologies = st.sampled_from(TOPOLOGIES)


def translated(world: World, offset: int) -> Sequence[tuple[Any, int | None, set[Any]]]:
    """Each link, the target offset of a group that read ``offset`` records of its source, and these records."""
    found = []
    for link in world.links:
        read = world.logs[link.name[0]][:offset]
        at = mappings(link, world.links)[LOG].translate(len(read))[0].offset
        found.append((link, at, {entry.record for entry in read}))
    return found


BEGUN: list[Move] = [("report", number, 1) for number in range(6)]
BEFORE_OWN: list[Move] = [("write", 2, 1), ("report", 3, 5), ("write", 0, 1), ("report", 0, 5), ("report", 1, 5)]
UNREPORTED: list[Move] = [("write", 2, 1), ("copy", 5, 1), ("write", 0, 1), ("report", 0, 1), ("report", 2, 5)]


@example(MESH, [*BEGUN, ("write", 2, 3), ("report", 5, 3)], 0)
@example(MESH, [*BEGUN, *UNREPORTED], 1)
@example(RING_WITH_ONE_BACK, [*BEGUN, *BEFORE_OWN], 1)
@example(TWO, [("write", 0, 3), ("forget all but the last", 0, 3), ("report", 1, 3)], 1)
@given(topologies, moves, st.integers(0, 60))
def test_a_group_that_moves_passes_over_nothing_unread(topology: str, moves: list[Move], offset: int) -> None:
    world = World(topology)
    world.run(moves)
    passed = [
        (link.name, at)
        for link, at, read in translated(world, offset)
        if at is not None and at > min(world.unread(link, read), default=at)
    ]
    assert passed == []


@given(topologies, moves, st.integers(0, 60))
def test_after_all_was_copied_a_group_goes_on_at_the_first_unread_record(
    topology: str, moves: list[Move], offset: int
) -> None:
    world = World(topology)
    world.run(("report" if what in FORGETS else what, number, count) for what, number, count in moves)
    world.run([("write", number, 1) for number in range(len(world.logs))])
    world.finish()
    for link, at, read in translated(world, offset):
        source, target = link.name
        writers = {one.name[0] for one in world.links if one.name[1] == target and one is not link}
        if all(world.reaches(writer, source) for writer in writers):
            end = len(world.logs[target])
            assert world.reaches(target, source) * (at - min(world.unread(link, read), default=end)) == 0
        else:
            assert at is None


@example("ab cb ca", [("write", 2, 1), ("report", 2, 1), ("write", 0, 1), ("report", 0, 2)], 1)
@given(topologies, moves, st.integers(0, 60))
def test_a_group_that_moves_back_over_one_link_passes_over_nothing_unread(
    topology: str, moves: list[Move], offset: int
) -> None:
    world = World(topology)
    world.run(moves)
    passed = []
    for link in (one for one in world.links if all(other.name != one.name[::-1] for other in world.links)):
        source, target = link.name
        read = {entry.record for entry in world.logs[target][:offset]}
        at = mappings_back(link, world.links)[LOG].translate(min(offset, len(world.logs[target])))[0].offset
        unread = [place for place, entry in enumerate(world.logs[source]) if entry.record not in read]
        if at is not None and at > min(unread, default=at):
            passed.append((link.name, at))
    assert passed == []
