"""The procedure "Move off the merged replicator" of docs/rocketmq.md, carried out word by word.

Each step is quoted here: one that is added, removed or reworded has no action, and fails. Both clusters are real. A
stand-in for the replicator copies, marks and commits as it does.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conformance.rocketmq import KEYS, USER, RocketMqCluster, RocketMqPair, sections
from tests.e2e.procedures import steps
from tests.e2e.trueup import Trueup, command
from tests.integration.rocketmq import administration
from trueup.connectors.closing import Closing
from trueup.connectors.contract import LogId
from trueup.connectors.rocketmq.client import group_offsets, messages, topics
from trueup.connectors.rocketmq.protocol import batch, properties

pytestmark = [pytest.mark.servers, pytest.mark.release]
TITLE, TOPIC, GROUP = "Move off the merged replicator", "moved_orders", "CID_RMQ_SYS_REPLICATOR_MYCONNECTOR"
QUEUES, SOME, COMMIT_S = 2, 300, 0.5
CALLED = {"east": "cloud_east_region", "west": "cloud_west_region"}


class Replicator(Closing):
    """Copies as the merged replicator does: names of properties get a prefix, the clusters passed are in one of them,
    and positions are offsets of a group at the source, which it commits from time to time."""

    def __init__(self, source: RocketMqCluster, target: RocketMqCluster) -> None:
        self._source, self._target = source, target
        self._next = {source.log(TOPIC, queue): 0 for queue in range(QUEUES)}
        self._stop, self._thread = threading.Event(), threading.Thread(target=self._run)

    def start(self) -> None:
        for log in self._next:
            topics.put_group(self._source.client, log.place, {"groupName": GROUP})
        self._thread.start()

    def committed(self) -> dict[LogId, int | None]:
        return {log: group_offsets.offset(self._source.client, GROUP, log) for log in self._next}

    def close(self) -> None:
        """Stop it."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(COMMIT_S):
            for log, at in self._next.items():
                for stored in self._source.stored(log, at):
                    self._copy(self._target.log(TOPIC, log.number), [*map(bytes, stored.bodies)])
                    self._next[log] = stored.offsets[-1] + 1
                group_offsets.commit(self._source.client, GROUP, log, self._next[log])

    def _copy(self, log: LogId, bodies: list[bytes]) -> None:
        marks = {"connect-ext-REPLICATOR-BORN-SOURCE": CALLED["east"] + ",", "connect-ext-own": "1"}
        send(self._target, log, bodies, marks)


def send(cluster: RocketMqCluster, log: LogId, bodies: list[bytes], named: dict[str, str]) -> None:
    body = batch.encode(bodies, [properties.encoded(named)] * len(bodies), [0] * len(bodies))
    cluster.client.ask(log.place, messages.send_batch(log, body, time.time_ns() // 1_000_000))


class Procedure:
    """Two clusters, the replicator between them, and the actions of an operator."""

    def __init__(self, pair: RocketMqPair, root: Path) -> None:
        self.pair, self.written = pair, list[bytes]()
        for cluster in (pair.east, pair.west):
            cluster.create(TOPIC, QUEUES)
        self.replicator = Replicator(pair.east, pair.west)
        common = {"topics": [TOPIC], "lease_s": 2.0, "heartbeat_s": 1.0}
        clusters = sections(pair)
        for name, cluster in clusters.items():
            options = cluster.get("options")
            cluster["options"] = {**(options if isinstance(options, dict) else {}), "replicator.source": CALLED[name]}
        self.trueup = Trueup(
            None,
            root,
            rocketmq=clusters,
            links={
                "h-s": {"source": "east", "target": "west", "mode": "observe", "start": f"group:{GROUP}", **common},
                "s-h": {"source": "west", "target": "east", "mode": "enforce", **common},
            },
        )

    def produce(self) -> None:
        """Write to each queue of the source."""
        for queue in range(QUEUES):
            bodies = [b"order %d" % (len(self.written) + n) for n in range(SOME)]
            send(self.pair.east, self.pair.east.log(TOPIC, queue), bodies, {"own": "1"})
            self.written += bodies

    def bodies(self, cluster: RocketMqCluster) -> list[bytes]:
        logs = (cluster.log(TOPIC, queue) for queue in range(QUEUES))
        return [bytes(body) for log in logs for stored in cluster.stored(log) for body in stored.bodies]

    def declare(self) -> None:
        """The replicator is running, and the configuration has the link."""
        self.replicator.start()
        self.produce()

    def look(self) -> None:
        """Doctor finds nothing wrong, and the plan stays empty."""
        checked = command("doctor", "-c", str(self.trueup.file), "--skip-spark")
        assert checked.code == 0, checked
        self.trueup.start()
        self.produce()
        self.trueup.until("the link", lambda: self.trueup.api("links/h-s")["copies"])
        assert self.trueup.json("plan") == []

    def stop(self) -> None:
        """Without producers, the replicator commits all that it copied before it is stopped."""
        ends = {self.pair.east.log(TOPIC, queue): len(self.written) // QUEUES for queue in range(QUEUES)}
        self.trueup.until("the replicator to commit", lambda: self.replicator.committed() == ends)
        self.replicator.close()

    def enforce(self) -> None:
        self.trueup.set("links.h-s.mode", "enforce")
        self.produce()

    def finish(self) -> None:
        """Wait until the link is up and has copied everything, and the other one has passed it."""

        def level() -> bool:
            rows = {row["link"]: row for row in self.trueup.json("get", "links")}
            passed = sum(row["offset"] for row in self.trueup.api("links/s-h")["copies"])
            up = all((row["state"], row["lag_records"]) == ("up", 0) for row in rows.values())
            return up and passed == len(self.written)

        self.trueup.until("both links to be level", level)
        administration.drop_group(self.pair.east.client, self.pair.east.log(TOPIC, 0).place, GROUP)


STEPS: dict[str, Callable[[Procedure], None]] = {
    'Declare the link in mode `observe`, with the same topics and `start: "group:CID_RMQ_SYS_REPLICATOR_MYCONNECTOR"`. '
    "With ACL the user of the link needs Sub on that group. Set `replicator.source` of both "
    "clusters.": Procedure.declare,
    "`trueup doctor`, then `trueup run` and `trueup plan`: the target topics exist already and nothing is to be "
    "created.": Procedure.look,
    "Stop the connector. It commits every `commit.offset.interval.ms`; what it copied after its last commit is copied "
    "a second time. To avoid that, stop the producers, wait for that time, and then stop the "
    "connector.": Procedure.stop,
    "`trueup config set links.h-s.mode enforce`.": Procedure.enforce,
    "When the link is `up`, delete the connectors for heartbeats and checkpoints, their topics, and the "
    "group.": Procedure.finish,
}


@pytest.fixture(scope="module")
def done(rocketmq: RocketMqPair, new_root: Callable[[], Path]) -> Iterator[Procedure]:
    """The whole procedure."""
    assert steps("rocketmq.md", TITLE) == [*STEPS]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in zip(KEYS.values(), USER, strict=True):
            patch.setenv(name, value)
        made = Procedure(rocketmq, new_root())
        with made.trueup, made.replicator:
            for action in STEPS.values():
                action(made)
            yield made


def test_every_message_is_at_the_target_once(done: Procedure) -> None:
    assert Counter(done.bodies(done.pair.west)) == Counter(done.written)


def test_what_the_replicator_wrote_does_not_come_home(done: Procedure) -> None:
    link = done.trueup.api("links/s-h")
    assert (link["copied"], done.bodies(done.pair.east)) == (0, sorted(done.written, key=order_in(done)))


def order_in(done: Procedure) -> Callable[[bytes], tuple[int, int]]:
    """The place of a body at the source: its queue, and its place there."""
    places = {body: (at // SOME % QUEUES, at) for at, body in enumerate(done.written)}
    return places.__getitem__
