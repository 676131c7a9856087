"""Log directories in the application, end to end: disks of different size, and SIGKILL of either side during a move."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.e2e.trueup import Trueup, source_of
from trueup.connectors.contract import Endpoint
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.kafka.logdirs.client import LogDirsClient, ReplicaLocation
from trueup.sandbox.demo.volumes import DemoBroker, Volumes
from trueup.state.common.errors import Retry
from trueup.state.logdirs.model import Broker as Seen

pytestmark = [pytest.mark.servers, pytest.mark.timeout(600)]
MB = 1 << 20
NODE, TOPIC, PARTITIONS, EACH = 1, "orders", 6, 12 * MB
TARGET = 0.1
SLOW, FAST = 400_000, 50 * MB


@pytest.fixture(scope="module")
def volumes(new_root: Callable[[], Path]) -> Iterator[Volumes]:
    with Volumes(new_root() / "disks", {"small": 96 * MB, "large": 288 * MB}) as made:
        yield made


@pytest.fixture(scope="module")
def small(volumes: Volumes) -> str:
    return str(next(iter(volumes.sizes)))


@pytest.fixture(scope="module")
def broker(volumes: Volumes, new_root: Callable[[], Path]) -> Iterator[DemoBroker]:
    with DemoBroker(new_root(), volumes) as made:
        made.up()
        yield made


@pytest.fixture(scope="module")
def disks(broker: DemoBroker, small: str) -> Iterator[LogDirsClient]:
    """All partitions of a topic are on the small disk."""
    with LogDirsClient(Endpoint("east", broker.bootstrap, 0)) as made:
        made.place([ReplicaLocation(NODE, TOPIC, number, small) for number in range(PARTITIONS)])
        made.create_topic(TOPIC, {number: [NODE] for number in range(PARTITIONS)}, {})
        for number in range(PARTITIONS):
            write(broker, number, EACH)
        yield made


@pytest.fixture(scope="module")
def trueup(disks: LogDirsClient, broker: DemoBroker, new_root: Callable[[], Path]) -> Iterator[Trueup]:
    kafka = {"east": {"bootstrap": broker.bootstrap, "bit": 0}}
    policy = {"headroom_bytes": 0, "poll_s": 1, "throttle_bytes_per_s": SLOW}
    with Trueup(None, new_root(), kafka=kafka, logdirs={"east": policy}) as made:
        made.start()
        yield made


def write(broker: DemoBroker, partition: int, size: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(size // 100_000):
        producer.produce(TOPIC, bytes(100_000), partition=partition)
    assert producer.flush(60) == 0


def seen(disks: LogDirsClient) -> Seen:
    """The broker's description of its directories. Waits for a broker that is starting."""
    found: list[Seen] = []

    def look() -> bool:
        try:
            found.extend(one.broker for one in disks.look() if one.broker is not None)
        except Retry:
            return False
        return bool(found)

    wait_until(look, 180.0, "the broker to describe its directories")
    return found[0]


def homes(disks: LogDirsClient, topic: str = TOPIC) -> dict[int, str]:
    """Directory of each partition."""
    found = seen(disks)
    rows = found.replicas
    mine = [row for row in range(len(rows)) if rows.name(row)[0] == topic and not rows.future[row]]
    return {rows.name(row)[1]: found.dirs[rows.home[row]].path for row in mine}


def left(disks: LogDirsClient, small: str) -> int:
    """Number of partitions on the small disk."""
    return list(homes(disks).values()).count(small)


def moving(disks: LogDirsClient) -> int:
    return len(seen(disks).moving)


def waiting(trueup: Trueup) -> str:
    """Id of the first move that awaits approval."""
    return str(
        trueup.until(
            "a move to wait",
            lambda: [r["id"] for r in trueup.json("plan") if r["stage"] == "awaiting approval" and r["kind"] == "move"],
        )[0]
    )


def level(trueup: Trueup, disks: LogDirsClient) -> bool:
    """Whether the disks are balanced, and no move, throttle or plan is left. Cordons and leftover files of moves are
    ignored: a broker deletes no files in the first 30 seconds after its start."""
    even = trueup.api("status")["logdirs"][0]["skew"] <= TARGET
    return even and not moving(disks) and not disks.throttled([NODE]) and not trueup.api("plan")


def counted(trueup: Trueup, outcome: str) -> int:
    """Number of moves that reached this stage in this run."""
    return sum(row["outcome"] == outcome and row["kind"] == "move" for row in trueup.api("actions?limit=1000") or [])


def test_in_observe_the_plan_is_shown_and_nothing_is_executed(trueup: Trueup, disks: LogDirsClient, small: str) -> None:
    moves = [row["evidence"] for row in trueup.json("plan") if row["kind"] == "move"]
    assert (moves[0]["from"], moves[-1]["skew_after"] <= TARGET) == (small, True)
    assert (left(disks, small), disks.throttled([NODE])) == (PARTITIONS, {})


# The first move: Trueup waits until a broker shows what it changed itself, and has changed no throttle yet.
def test_a_throttle_of_others_stays(trueup: Trueup, disks: LogDirsClient, small: str) -> None:
    disks.throttle(NODE, 77 * MB)
    trueup.set("logdirs.east.throttle_bytes_per_s", FAST)
    trueup.set("logdirs.east.mode", "approve")
    trueup.run("approve", waiting(trueup))
    trueup.until("the move to arrive", lambda: left(disks, small) == PARTITIONS - 1 and counted(trueup, "arrived"))
    assert disks.throttled([NODE]) == {NODE: 77 * MB}
    disks.throttle(NODE, None)


def test_in_approve_one_move_is_done_and_no_other(trueup: Trueup, disks: LogDirsClient, small: str) -> None:
    trueup.run("approve", waiting(trueup))
    trueup.until("the move to arrive", lambda: left(disks, small) == PARTITIONS - 2 and counted(trueup, "arrived") == 2)
    trueup.until("the throttle to go", lambda: not disks.throttled([NODE]))
    assert (counted(trueup, "arrived"), moving(disks)) == (2, 0)


def test_killed_amid_a_move_it_goes_on_and_leaves_no_throttle(trueup: Trueup, disks: LogDirsClient) -> None:
    trueup.set("logdirs.east.throttle_bytes_per_s", SLOW)
    trueup.set("logdirs.east.mode", "enforce")
    trueup.until("a move", lambda: moving(disks) == 1)
    trueup.kill()
    assert (moving(disks), disks.throttled([NODE])) == (1, {NODE: SLOW})
    trueup.start()
    trueup.set("logdirs.east.throttle_bytes_per_s", FAST)
    trueup.until("the disks to be level", lambda: level(trueup, disks))
    assert len(homes(disks)) == PARTITIONS


def test_a_move_that_the_killed_broker_forgot_is_ordered_again(
    trueup: Trueup, disks: LogDirsClient, broker: DemoBroker, volumes: Volumes, small: str
) -> None:
    trueup.set("logdirs.east.throttle_bytes_per_s", SLOW)
    write(broker, next(number for number, path in homes(disks).items() if path == small), EACH)
    trueup.until("a move", lambda: moving(disks) == 1)
    broker.kill()
    for path in volumes.sizes:  # the state after a kill before this file was renamed
        for file in volumes.path(str(path)).glob("*-future/partition.metadata"):
            file.unlink()
    broker.up()
    trueup.until("the move to be missed", lambda: counted(trueup, "forgotten"))
    trueup.set("logdirs.east.throttle_bytes_per_s", FAST)
    trueup.until("the disks to be level", lambda: level(trueup, disks))
    assert len(homes(disks)) == PARTITIONS


def test_new_partitions_of_anybody_go_where_there_is_room(
    trueup: Trueup, disks: LogDirsClient, broker: DemoBroker
) -> None:
    (open_,) = [d.path for d in seen(disks).dirs if not d.cordoned]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("later", 4, 1)])["later"].result(30)
    trueup.until("the partitions", lambda: len(homes(disks, "later")) == 4)
    assert set(homes(disks, "later").values()) == {open_}


def test_in_observe_everything_of_ours_is_taken_back(trueup: Trueup, disks: LogDirsClient) -> None:
    trueup.set("logdirs.east.mode", "observe")
    trueup.until("the cordon to go", lambda: not any(d.cordoned for d in seen(disks).dirs))
    assert disks.throttled([NODE]) == {}


def test_brokers_are_observed_while_spark_is_down(trueup: Trueup) -> None:
    times_ms: list[int] = []

    def observed() -> bool:
        status = trueup.api("status")
        if source_of(status, "spark")["state"] != "down":
            times_ms.clear()
            with suppress(StopIteration, psutil.NoSuchProcess):  # it may just end, or not be there yet
                trueup.jvm().kill()
            return False
        times_ms.append(status["logdirs"][0]["at_ms"])
        return times_ms[-1] > times_ms[0]

    trueup.until("a pass without Spark", observed)
