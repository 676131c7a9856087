"""Log directories of brokers that restart or lose a disk, while other brokers keep running."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer

from trueup.connectors.contract import Endpoint
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.kafka.logdirs.client import LogDirsClient, ReplicaLocation
from trueup.sandbox.demo.volumes import OnVolumes, Volumes, settings_of
from trueup.sandbox.servers.kafka_cluster import Brokers, KafkaNode
from trueup.state.logdirs.model import Broker
from trueup.state.logdirs.settings import LogDirsSettings as Policy
from trueup.state.logdirs.snapshot import largest
from trueup.state.logdirs.verdicts import NOTHING, OwnChanges
from trueup.streams.config.live import LiveSection
from trueup.streams.logdirs.executor import DirectoryBalancer
from trueup.streams.logdirs.reconciler import BrokerState, LogDirsReconciler
from trueup.streams.logdirs.report import cluster_status

pytestmark = [pytest.mark.servers, pytest.mark.release]
MB = 1 << 20
STAYS, GOES = 1, 2
TOPIC, EACH = "orders", 10 * MB
FILLED = 1
"""A partition of the broker that is killed."""
SLOW, FAST = 300_000, 100 * MB
WALL = "replication-offset-checkpoint.tmp"
"""The broker writes this file to each directory twice per second. A failed write takes the directory offline."""
SOON_S = 180.0
"""A restarted broker is observed within this time. Clients refresh their metadata only after five minutes."""


class Disked(OnVolumes, KafkaNode):
    """A broker of the cluster whose log directories are volumes."""

    def __init__(self, cluster: Brokers, volumes: Volumes, number: int) -> None:
        self.volumes = volumes
        super().__init__(cluster, number, "256m")
        self._settings |= settings_of(volumes)


class Loop:
    """The reconcile loop of `trueup run` for one cluster, run step by step."""

    def __init__(self, bootstrap: str) -> None:
        self.policy = Policy(mode="enforce", headroom_bytes=0, throttle_bytes_per_s=SLOW)
        balancer = DirectoryBalancer({}, lambda *_: None, lambda *_: None, lambda *_: None)
        endpoint = Endpoint("east", bootstrap, 0)
        self.dirs = LogDirsReconciler(
            "east",
            LiveSection(lambda: self.policy),
            balancer,
            lambda: LogDirsClient(endpoint),
            lambda: time.time_ns() // 10**6,
            lambda *_: None,
        )

    def set(self, **policy: object) -> None:
        self.policy = replace(self.policy, **policy)  # type: ignore[arg-type]

    def until(self, what: str, condition: Callable[[], object], limit_s: float = 180.0) -> None:
        """Reconcile until the condition holds."""

        def turn() -> object:
            self.dirs.reconcile()
            return condition()

        wait_until(turn, limit_s, what)

    def known(self, broker: int) -> BrokerState:
        return self.dirs.known[broker]

    def ours(self, broker: int) -> OwnChanges:
        return self.dirs.balancer.of(broker)

    def copying(self, broker: int) -> bool:
        return any(move.copied for move in self.ours(broker).moves)

    def idle(self, *brokers: int) -> bool:
        """Whether these brokers have no planned moves, and nothing of Trueup's except cordons."""
        seen = [(self.known(broker).decision, self.ours(broker)) for broker in brokers]
        return all(decision and not (decision.moves or ours.moves or ours.throttles) for decision, ours in seen)


@pytest.fixture(scope="module")
def volumes(new_root: Callable[[], Path]) -> Iterator[dict[int, Volumes]]:
    sizes = {STAYS: {"small": 64 * MB, "large": 192 * MB}, GOES: {"small": 64 * MB, "large": 192 * MB, "mid": 128 * MB}}
    made = {number: Volumes(new_root(), each) for number, each in sizes.items()}
    yield made
    for each in made.values():
        each.close()


@pytest.fixture(scope="module")
def brokers(volumes: dict[int, Volumes], new_root: Callable[[], Path]) -> Iterator[Brokers]:
    # By default, a broker deletes no files in its first 30 seconds.
    settings = {"replica.high.watermark.checkpoint.interval.ms": 500, "log.initial.task.delay.ms": 500}
    with Brokers(new_root(), len(volumes), settings) as made:
        for plain in made.brokers.values():
            plain.close()
        made.brokers |= {number: Disked(made, each, number) for number, each in volumes.items()}
        made.up()
        yield made


@pytest.fixture(scope="module")
def paths(volumes: dict[int, Volumes]) -> dict[int, list[str]]:
    return {number: [str(path) for path in each.sizes] for number, each in volumes.items()}


@pytest.fixture(scope="module")
def disks(brokers: Brokers, paths: dict[int, list[str]]) -> Iterator[LogDirsClient]:
    """An operator's client. All partitions of a topic are on the small disks. One of these is cordoned by hand."""
    with LogDirsClient(Endpoint("east", brokers.bootstrap, 0)) as made:
        homes = {number: (STAYS, GOES)[number % 2] for number in range(8)}
        made.place([ReplicaLocation(broker, TOPIC, number, paths[broker][0]) for number, broker in homes.items()])
        made.create_topic(TOPIC, {number: [broker] for number, broker in homes.items()}, {})
        for number in homes:
            write(brokers, number, EACH)
        made.cordon(STAYS, paths[STAYS][:1])
        wait_until(lambda: cordoned(made, STAYS) == paths[STAYS][:1], 180.0, "the cordon")
        yield made


@pytest.fixture(scope="module")
def loop(brokers: Brokers, disks: LogDirsClient) -> Iterator[Loop]:
    made = Loop(brokers.bootstrap)
    yield made
    made.dirs.client.close()


def write(brokers: Brokers, partition: int, size: int) -> None:
    producer = Producer({"bootstrap.servers": brokers.bootstrap})
    for _ in range(size // 100_000):
        producer.produce(TOPIC, bytes(100_000), partition=partition)
    assert producer.flush(60) == 0


def seen(disks: LogDirsClient, number: int) -> Broker:
    (found,) = [one.broker for one in disks.look([number])]
    assert found is not None
    return found


def cordoned(disks: LogDirsClient, number: int) -> list[str]:
    return [d.path for d in seen(disks, number).dirs if d.cordoned]


def on(disks: LogDirsClient, number: int, path: str, topic: str = TOPIC) -> list[int]:
    """Partitions in a directory."""
    found, rows = seen(disks, number), seen(disks, number).replicas
    home = found.place[path]
    mine = [row for row in range(len(rows)) if rows.name(row)[0] == topic and rows.home[row] == home]
    return [rows.name(row)[1] for row in mine if not rows.future[row]]


def copying(loop: Loop, *brokers: int) -> None:
    loop.until("moves", lambda: all(loop.copying(broker) for broker in brokers))


def gone(loop: Loop, brokers: Brokers) -> str:
    """Kill a broker, wait until its absence is observed, and return the reported problem."""
    brokers.kill(GOES)
    loop.until("the broker to be away", lambda: loop.known(GOES).error.startswith("it is down"))
    (reported,) = loop.dirs.left()
    return reported


def back(loop: Loop) -> None:
    loop.until("the broker to be seen", lambda: not loop.known(GOES).error, SOON_S)


def elsewhere(brokers: Brokers, volumes: Volumes) -> None:
    """Start a stopped broker on other ports."""
    old = brokers.brokers[GOES]
    (old.root / "ports.json").unlink()
    made = Disked(brokers, volumes, GOES)  # while the old ports are reserved
    old.close()
    brokers.brokers[GOES] = made
    brokers.start(GOES)


def test_what_is_set_on_a_broker_that_is_away_is_a_problem(loop: Loop, brokers: Brokers) -> None:
    copying(loop, STAYS, GOES)
    well = loop.dirs.left()
    expected = "broker 2 of east still has a throttle and cordons and moves of Trueup: it is down"
    assert (well, gone(loop, brokers).startswith(expected)) == ([], True)


def test_a_topic_is_made_while_the_broker_that_was_the_controller_is_away(loop: Loop, disks: LogDirsClient) -> None:
    client = loop.dirs.client
    assert isinstance(client, LogDirsClient)
    client._admin._controller_id = GOES  # type: ignore[assignment]  # the initial value of kafka-python is None
    client.create_topic("meanwhile", {0: [STAYS]}, {})
    wait_until(lambda: "meanwhile" in seen(disks, STAYS).replicas.topics, SOON_S, "the partition")


def test_a_broker_that_is_back_is_seen_at_once(loop: Loop, brokers: Brokers) -> None:
    brokers.start(GOES)
    back(loop)
    assert (loop.dirs.left(), loop.known(GOES).rule) == ([], "logdirs.uneven")


def test_what_is_ours_there_is_taken_back_when_it_is_back_in_observe_at_another_address(
    loop: Loop, brokers: Brokers, disks: LogDirsClient, volumes: dict[int, Volumes]
) -> None:
    copying(loop, GOES)
    gone(loop, brokers)
    loop.set(mode="observe", throttle_bytes_per_s=FAST)
    loop.until("the other to be left alone", lambda: loop.ours(STAYS) == NOTHING)
    still = loop.dirs.left()
    elsewhere(brokers, volumes[GOES])
    back(loop)
    loop.until("all to be taken back", lambda: loop.ours(GOES) == NOTHING)
    wait_until(lambda: disks.look([GOES])[0].broker, SOON_S, "the operator to have the new address")
    wait_until(lambda: not cordoned(disks, GOES), SOON_S, "the cordon to go")
    wait_until(lambda: not disks.throttled([GOES]), SOON_S, "the throttle to go")
    assert (len(still), loop.dirs.left()) == (1, [])


def test_moves_go_on_in_enforce_and_leave_no_throttle(loop: Loop, disks: LogDirsClient) -> None:
    loop.set(mode="enforce", throttle_bytes_per_s=FAST)
    loop.until("all to be level", lambda: loop.idle(STAYS, GOES))
    wait_until(lambda: not disks.throttled([STAYS, GOES]), SOON_S, "the throttles to go")
    assert loop.dirs.left() == []


def test_a_cordon_by_hand_that_equals_ours_outlasts_our_moves(
    loop: Loop, disks: LogDirsClient, paths: dict[int, list[str]]
) -> None:
    decision = loop.known(STAYS).decision
    assert decision is not None
    small, large = paths[STAYS]
    loop.set(mode="observe")
    loop.until("what is ours to be taken back", lambda: loop.ours(GOES) == NOTHING and not cordoned(disks, GOES))
    assert ([*decision.steer], len(on(disks, STAYS, large)), cordoned(disks, STAYS)) == ([small], 3, [small])


@pytest.fixture(scope="module")
def broken(
    loop: Loop, brokers: Brokers, disks: LogDirsClient, volumes: dict[int, Volumes], paths: dict[int, list[str]]
) -> str:
    """The target directory of a move, taken offline during the move."""
    loop.set(mode="observe")
    loop.until("nothing of ours to be there", lambda: loop.ours(GOES) == NOTHING and not cordoned(disks, GOES))
    disks.place([ReplicaLocation(GOES, TOPIC, FILLED, paths[GOES][0])])  # the small directory may be empty here
    wait_until(lambda: FILLED in on(disks, GOES, paths[GOES][0]), 180.0, "the partition to be there")
    write(brokers, FILLED, 2 * EACH)
    loop.set(mode="enforce", throttle_bytes_per_s=SLOW)
    copying(loop, GOES)
    (move,) = loop.ours(GOES).moves
    (volumes[GOES].path(move.target) / WALL).mkdir()
    loop.until("the directory to be offline", lambda: loop.known(GOES).rule == "logdirs.offline")
    return move.target


def rest(paths: dict[int, list[str]], broken: str) -> str:
    """The remaining directory besides the small one."""
    (left,) = [path for path in paths[GOES][1:] if path != broken]
    return left


def test_an_offline_directory_is_reported_neither_empty_nor_full(loop: Loop, broken: str) -> None:
    observed = loop.known(GOES).observed
    assert observed is not None
    (row,) = [d for d in observed.directories if d.path == broken]
    result = cluster_status(loop.dirs).reason
    assert (result.startswith(f"broker {GOES}: offline: {broken};"), row.online, row.total, row.usable) == (
        True,
        False,
        -1,
        -1,
    )


def test_a_move_whose_target_is_offline_and_its_throttle_are_a_problem(loop: Loop, broken: str) -> None:
    expected = f"broker {GOES} of east still has a throttle and cordons and moves of Trueup: offline: {broken};"
    assert [reported.startswith(expected) for reported in loop.dirs.left()] == [True]


def test_nothing_is_planned_while_a_directory_is_offline(loop: Loop, broken: str) -> None:
    decision = loop.known(GOES).decision
    assert decision is not None
    assert (decision.moves, decision.start) == ((), ())


def test_new_partitions_go_to_the_best_directory_that_is_left(
    loop: Loop, disks: LogDirsClient, broken: str, paths: dict[int, list[str]]
) -> None:
    loop.until("the cordon", lambda: cordoned(disks, GOES) == paths[GOES][:1], SOON_S)
    disks.create_topic("later", {number: [GOES] for number in range(3)}, {})
    left = rest(paths, broken)
    wait_until(lambda: len(on(disks, GOES, left, "later")) == 3, SOON_S, "all partitions to be there")


def test_the_broker_refuses_moves_between_directories_that_are_well(
    disks: LogDirsClient, broken: str, paths: dict[int, list[str]]
) -> None:
    answer = disks.place([ReplicaLocation(GOES, TOPIC, FILLED, rest(paths, broken))])[0]
    assert (answer.result, "offline" in answer.detail) == ("retry", True)


def test_other_brokers_are_levelled_meanwhile(
    loop: Loop, brokers: Brokers, disks: LogDirsClient, broken: str, paths: dict[int, list[str]]
) -> None:
    loop.set(throttle_bytes_per_s=FAST)
    small, large = paths[STAYS]
    write(brokers, on(disks, STAYS, small)[0], 3 * EACH)
    loop.until("the move", lambda: not on(disks, STAYS, small) and loop.idle(STAYS))
    assert (len(on(disks, STAYS, large)), loop.known(GOES).rule) == (4, "logdirs.offline")


def test_when_it_is_mended_the_broker_is_levelled(
    loop: Loop,
    brokers: Brokers,
    disks: LogDirsClient,
    volumes: dict[int, Volumes],
    broken: str,
    paths: dict[int, list[str]],
) -> None:
    brokers.kill(GOES)
    (volumes[GOES].path(broken) / WALL).rmdir()
    brokers.start(GOES)
    # A pass that fails, or meets a starting broker that does not list all replicas, leaves nothing to do for a moment.
    loop.until(
        "the largest replica to leave the small directory",
        lambda: (
            not loop.known(GOES).error and loop.idle(GOES) and largest(seen(disks, GOES), 1)[0].path in paths[GOES][1:]
        ),
    )
    wait_until(lambda: not disks.throttled([GOES]), SOON_S, "the throttle to go")
    assert (loop.known(GOES).rule != "logdirs.offline", loop.dirs.left()) == (True, [])
