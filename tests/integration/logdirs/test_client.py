"""Log directories of a real broker: sizes of three volumes, moves, cordons, throttle, and rejected requests."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka import Producer
from kafka.protocol.metadata import MetadataResponse

from trueup.connectors.contract import Endpoint
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.kafka.client.kafka_python import CleanClient
from trueup.connectors.kafka.logdirs.client import LogDirsClient, ReplicaLocation
from trueup.state.common.errors import Refused, Retry
from trueup.state.logdirs.model import SIZE, Broker, rank
from trueup.state.logdirs.plan import Balance, plan, startable

pytestmark = pytest.mark.servers
MB = 1 << 20
NODE = 1


@pytest.fixture(scope="module")
def paths(new_root: Callable[[], Path]) -> tuple[Path, list[str]]:
    root = new_root()
    return root, [str(root / name) for name in ("data", "d2", "d3")]


@pytest.fixture(scope="module")
def broker(paths: tuple[Path, list[str]]) -> Iterator[Kafka]:
    root, dirs = paths
    made = Kafka(root, settings={"log.dirs": ",".join(dirs), "log.segment.bytes": MB, "file.delete.delay.ms": 100})
    made.up()
    yield made
    made.close()


@pytest.fixture(scope="module")
def dirs(paths: tuple[Path, list[str]]) -> list[str]:
    return paths[1]


@pytest.fixture(scope="module")
def logdirs(broker: Kafka) -> Iterator[LogDirsClient]:
    with LogDirsClient(Endpoint("one", broker.bootstrap, 0)) as made:
        yield made


def seen(logdirs: LogDirsClient) -> Broker:
    found = logdirs.look()[0].broker
    assert found is not None
    return found


def homes(logdirs: LogDirsClient, topic: str) -> list[str]:
    """Directory of each partition's current replica."""
    found, rows = seen(logdirs), seen(logdirs).replicas
    mine = [row for row in range(len(rows)) if rows.name(row)[0] == topic and not rows.future[row]]
    return [found.dirs[rows.home[row]].path for row in sorted(mine, key=lambda row: int(rows.partition[row]))]


def copied(logdirs: LogDirsClient) -> int:
    """Bytes written by moves in progress."""
    found = seen(logdirs)
    return sum(int(found.replicas.size[move.future]) for move in found.moving)


def filled(broker: Kafka, topic: str, size: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    noise = np.random.default_rng(1).bytes(100_000)
    for _ in range(size // len(noise)):
        producer.produce(topic, noise, partition=0)
    assert producer.flush(120) == 0


def test_directories_come_in_the_order_of_log_dirs(logdirs: LogDirsClient, dirs: list[str]) -> None:
    assert [d.path for d in seen(logdirs).dirs] == dirs


def test_directories_of_one_file_system_are_one_volume(logdirs: LogDirsClient) -> None:
    assert set(seen(logdirs).volumes.tolist()) == {0}


def test_new_partitions_keep_out_of_cordoned_directories(logdirs: LogDirsClient, dirs: list[str]) -> None:
    logdirs.cordon(NODE, [dirs[0], dirs[2]])
    wait_until(lambda: [d.cordoned for d in seen(logdirs).dirs] == [True, False, True], 180.0, "the cordon")
    logdirs.create_topic("steered", {number: [NODE] for number in range(4)}, {})
    wait_until(lambda: len(homes(logdirs, "steered")) == 4, 180.0, "the partitions")
    assert set(homes(logdirs, "steered")) == {dirs[1]}


def test_a_move_into_a_cordoned_directory_is_refused(logdirs: LogDirsClient, dirs: list[str]) -> None:
    logdirs.cordon(NODE, [dirs[2]])
    wait_until(lambda: [d.cordoned for d in seen(logdirs).dirs] == [False, False, True], 180.0, "the cordon")
    answer = logdirs.place([ReplicaLocation(NODE, "steered", 0, dirs[2])])[0]
    assert (answer.result, answer.detail) == ("refused", "the directory is cordoned")


def test_opened_again_it_takes_the_replica(logdirs: LogDirsClient, dirs: list[str]) -> None:
    logdirs.cordon(NODE, [])
    wait_until(lambda: not any(d.cordoned for d in seen(logdirs).dirs), 180.0, "the end of the cordon")
    logdirs.place([ReplicaLocation(NODE, "steered", 0, dirs[2])])
    wait_until(lambda: homes(logdirs, "steered")[0] == dirs[2], 180.0, "the move")
    assert homes(logdirs, "steered") == [dirs[2], *[dirs[1]] * 3]


def test_a_directory_chosen_beforehand_is_where_the_partition_is_made(logdirs: LogDirsClient, dirs: list[str]) -> None:
    answers = logdirs.place([ReplicaLocation(NODE, "chosen", number, dirs[2]) for number in range(3)])
    logdirs.create_topic("chosen", {number: [NODE] for number in range(3)}, {})
    wait_until(lambda: len(homes(logdirs, "chosen")) == 3, 180.0, "the partitions")
    assert ({a.result for a in answers}, set(homes(logdirs, "chosen"))) == ({"recorded"}, {dirs[2]})


@pytest.mark.parametrize(
    ("name", "configs", "code"),
    [
        ("chosen", {}, "TopicAlreadyExistsError (36): Topic 'chosen' already exists"),
        ("a b", {}, "InvalidTopicError (17)"),
        ("new", {"retention.ms": "long"}, "(40): Invalid value long"),
    ],
)
def test_a_topic_that_the_broker_does_not_accept_is_refused_in_its_words(
    logdirs: LogDirsClient, name: str, configs: dict[str, str], code: str
) -> None:
    with pytest.raises(Refused) as found:
        logdirs.create_topic(name, {0: [NODE]}, configs)
    assert (code in found.value.found, "Request" in found.value.found) == (True, False), found.value.found


@pytest.mark.parametrize("version", [(2, 7), (2, 8), (3, 6), (3, 7), (4, 0)])
def test_brokers_of_all_versions_are_listed(broker: Kafka, version: tuple[int, int]) -> None:
    """The client sends the requests of a broker of this version."""
    client = CleanClient(bootstrap_servers=[broker.bootstrap], api_version=version)
    try:
        assert [(found["broker_id"], found["rack"]) for found in client.describe_cluster()["brokers"]] == [(NODE, None)]
    finally:
        client.close()


def test_a_directory_that_is_not_there_is_refused(logdirs: LogDirsClient) -> None:
    assert logdirs.place([ReplicaLocation(NODE, "steered", 0, "/nowhere")])[0].result == "refused"


def test_a_move_under_throttle_is_seen_and_can_be_cancelled(
    broker: Kafka, logdirs: LogDirsClient, dirs: list[str]
) -> None:
    logdirs.create_topic("large", {0: [NODE]}, {})
    wait_until(lambda: len(homes(logdirs, "large")) == 1, 180.0, "the partition")
    home = homes(logdirs, "large")[0]
    filled(broker, "large", 20 * MB)
    logdirs.throttle(NODE, MB)
    wait_until(lambda: logdirs.throttled([NODE]) == {NODE: MB}, 180.0, "the throttle")
    logdirs.place([ReplicaLocation(NODE, "large", 0, next(path for path in dirs if path != home))])
    wait_until(lambda: len(seen(logdirs).moving) == 1, 180.0, "the move to be seen")
    logdirs.place([ReplicaLocation(NODE, "large", 0, home)])
    wait_until(lambda: not seen(logdirs).moving, 180.0, "the end of the move")
    assert homes(logdirs, "large") == [home]


def test_the_throttle_is_taken_away(logdirs: LogDirsClient) -> None:
    logdirs.throttle(NODE, None)
    wait_until(lambda: logdirs.throttled([NODE]) == {}, 180.0, "the throttle to go")
    assert logdirs.throttled([NODE]) == {}


def test_a_move_outlasts_the_broker_that_is_killed_in_it(
    broker: Kafka, logdirs: LogDirsClient, dirs: list[str]
) -> None:
    logdirs.throttle(NODE, MB)
    wait_until(lambda: logdirs.throttled([NODE]) == {NODE: MB}, 180.0, "the throttle")
    target = next(path for path in dirs if path != homes(logdirs, "large")[0])
    logdirs.place([ReplicaLocation(NODE, "large", 0, target)])
    # A broker that is killed before the first bytes may forget the move: see docs/logdirs.md.
    wait_until(lambda: copied(logdirs) > 0, 180.0, "the first bytes")
    broker.kill()
    broker.restart()
    wait_until(lambda: _answers(logdirs), 180.0, "the broker")
    logdirs.throttle(NODE, None)
    wait_until(lambda: homes(logdirs, "large") == [target], 180.0, "the move to end by itself")
    assert not seen(logdirs).moving


def test_a_broker_that_was_away_when_metadata_were_read_is_asked(logdirs: LogDirsClient) -> None:
    manager = logdirs._admin._manager
    known = manager.cluster._brokers
    other = MetadataResponse.MetadataResponseBroker(NODE + 1, known[NODE].host, known[NODE].port, None)
    manager.cluster._brokers = {other.node_id: other}
    manager.close(NODE)
    assert seen(logdirs).id == NODE


def test_a_plan_on_one_volume_moves_nothing(logdirs: LogDirsClient) -> None:
    found = seen(logdirs)
    made = plan(found, Balance())
    assert (made.moves, startable(found, made.moves, Balance()), rank(found, SIZE).strategy) == ((), [], SIZE)


def _answers(logdirs: LogDirsClient) -> bool:
    try:
        return logdirs.look()[0].broker is not None
    except Retry:
        return False
