"""`trueup demo reads`: a Java consumer stalls at a ledger whose tiered objects are gone, and goes on after the priority
of its topic is switched; the priority returns with the objects. Then the broker is stopped, and `trueup read` goes on.
"""

import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from trueup.connectors.s3.store import BucketLocation, ObjectStore
from trueup.sandbox.demo.application import DemoApplication
from trueup.sandbox.demo.rack_drill import fetch, printer
from trueup.sandbox.demo.waiting import Say, made, output_of, start_cluster, wait_for
from trueup.sandbox.forgetting import listed, offload, unload
from trueup.sandbox.gateway import Gateway
from trueup.sandbox.java_consumer import JavaConsumer
from trueup.sandbox.messages import MessageClient, compare
from trueup.sandbox.pulsar import BUCKET, OFFLOADER, SandboxPulsar
from trueup.sandbox.servers.objects import CREDENTIALS, REGION
from trueup.state.common.counts import many
from trueup.streams.runtime.spark.session import line

TOPIC, COUNT, PER_LEDGER = "public/default/orders", 70, 20
STALLED_MS, LOOK_MS = 4_000, 250
BROKER = {
    "managedLedgerMaxEntriesPerLedger": PER_LEDGER,
    "managedLedgerOffloadDeletionLagMs": 86_400_000,
    "topicLevelPoliciesEnabled": "true",
    "systemTopicEnabled": "true",
}


@dataclass(slots=True)
class ReadsResult:
    """The result of the demo."""

    stalled: int = 0
    """The number of messages that the consumer received before it stalled."""
    received: int = 0
    """The number of correct messages that the consumer received in all, before and after the switch."""
    returned: bool = False
    """Whether the topic has its original read priority again."""
    read: int = 0
    """The number of messages that `trueup read` returned without a broker."""

    @property
    def right(self) -> bool:
        """The consumer stalled and received everything in the end. The reader may lack the newest messages of the open
        ledger: only their writer knows that they are confirmed."""
        return (self.stalled, self.received, self.returned) == (PER_LEDGER, COUNT + 3, True) and self.read >= COUNT


class Prioritized(DemoApplication):
    """Trueup with queries about read priorities."""

    def approve(self, about: str) -> None:
        """Wait for an action, approve it, and wait until it is done."""

        def found() -> list[str]:
            rows = [row for row in self._api.get("plan") if row["stage"] == "awaiting approval"]
            return [row["id"] for row in rows if row["id"].startswith(about)]

        def done() -> bool:
            return any(row["id"] == action and row["outcome"] == "done" for row in self._api.get("actions", limit=100))

        wait_for(f"{about} in the plan", found, self.say)
        (action,) = found()
        self._api.post("approve", {"ids": [action]})
        wait_for(f"{action} to be done", done, self.say)


def run(root: Path, say: Say) -> ReadsResult:
    """Run the demo on its own servers below ``root``."""
    os.environ.update(CREDENTIALS)
    with SandboxPulsar(root / "pulsar", settings=BROKER, tiered=True) as pulsar:
        say("starting ZooKeeper, two bookies, an object store and a Pulsar broker")
        start_cluster(pulsar, say)
        with MessageClient(pulsar.service_url) as messages:
            messages.write(TOPIC, range(COUNT))
            unload(pulsar, TOPIC)
            messages.write(TOPIC, range(COUNT, COUNT + 3))
        made(f"{TOPIC} to be offloaded", lambda: offload(pulsar, TOPIC), say)
        say(f"{many(COUNT + 3, 'message')} in {TOPIC}, offloaded; brokers read tiered storage first")
        with Prioritized(_settings(pulsar), root / "trueup", say) as trueup:
            trueup.wait_until("Trueup to be ready", lambda status: status["ready"])
            result = _fall_back(pulsar, trueup, root, say)
        say("stopping the broker")
        pulsar.kill("broker")
        result.read = _read(root / "trueup" / "trueup.yaml", say)
        say(f"trueup read: {many(result.read, 'message')} without a broker")
        return result


def _settings(pulsar: SandboxPulsar) -> dict[str, object]:
    key, secret = CREDENTIALS
    place = {"bucket": BUCKET, "region": REGION, "endpoint": pulsar.objects.endpoint}
    reads = {
        "admin": [pulsar.admin_url],
        "mode": "approve",
        "interval_s": 0.5,
        "settle_looks": 3,
        "settle_s": 2.0,
        "declared": {"public/default": "tiered-storage-first"},
    }
    return {
        "cluster": {"zookeeper": str(pulsar.zookeeper.address), "name": "demo"},
        "spark": {"memory": "768m"},
        "stores": {"archive": {**place, "key_env": key, "secret_env": secret}},
        "read_priority": reads,
    }


def _fall_back(pulsar: SandboxPulsar, trueup: Prioritized, root: Path, say: Say) -> ReadsResult:
    """The consumer stalls, goes on after an approval, and the priority returns after another one."""
    lost = listed(pulsar, TOPIC)[1]
    store = ObjectStore(BucketLocation(BUCKET, REGION, pulsar.objects.endpoint, *CREDENTIALS))
    keys = [stored.key for page in store.objects() for stored in page if f"-ledger-{lost}" in stored.key]
    for key in keys:
        pulsar.objects.copy(BUCKET, key, f"kept-{key}")
    store.delete(keys)
    say(f"the objects of ledger {lost} are gone")
    gateway = made("the JVM of the consumer", lambda: Gateway("consumer", root / "consumer", pulsar.jar_set), say)
    try:
        with JavaConsumer(gateway, pulsar.service_url, TOPIC) as consumer:
            _receive(consumer, PER_LEDGER, say)
            result = ReadsResult(stalled=consumer.take_all(STALLED_MS))
            say(f"the Java consumer stalls after {many(result.stalled, 'message')}")
            trueup.approve("switch/")
            say("Trueup found it; after an approval the topic reads BookKeeper first")
            _receive(consumer, COUNT + 3, say)
            result.received = len(compare(TOPIC, consumer.contents).numbers)
            say(f"the same consumer has {many(result.received, 'message')}")
    finally:
        gateway.close()
    for key in keys:
        pulsar.objects.copy(BUCKET, f"kept-{key}", key)
    say("the objects are back")
    trueup.approve("return/")
    result.returned = pulsar.ask("GET", f"persistent/{TOPIC}/offloadPolicies") is None
    say("after an approval the priority has returned")
    return result


def _receive(consumer: JavaConsumer, count: int, say: Say) -> None:
    """Wait until the consumer has this many messages."""

    def received() -> bool:
        while len(consumer.contents) < count and consumer.take(LOOK_MS):
            pass
        return len(consumer.contents) >= count

    wait_for(f"{many(count, 'message')} at the consumer", received, say, lambda: f"{len(consumer.contents)} received")


def _read(settings: Path, say: Say) -> int:
    """Messages that `trueup read` gives out."""
    command = [sys.executable, "-m", "trueup.streams.cli.main", "read", TOPIC, "-c", str(settings), "-o", "json"]
    return len(output_of("trueup read", command, settings.with_name("read.log"), say).splitlines())


def main() -> int:
    """Run the demo; returns 0 only if the consumer received everything and the priority returned."""
    err = Console(stderr=True, highlight=False, soft_wrap=True)
    fetch(err, ("pulsar-4.2.4", OFFLOADER, "bookkeeper-4.17.3", "kafka-4.3.1", line().jars))
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="trueup-reads-") as place:
        result = run(Path(place), printer(err))
    table = Table("what", "result", title=f"Read priorities, {time.monotonic() - begun:.0f} s")
    table.add_row("messages until the consumer stalled", str(result.stalled))
    table.add_row("messages of the same consumer after the switch", f"{result.received} of {COUNT + 3}")
    table.add_row("the priority returned with the objects", "yes" if result.returned else "no")
    table.add_row("messages of trueup read, without a broker", f"{result.read} of {COUNT + 3}")
    Console(highlight=False, soft_wrap=True).print(table)
    return 0 if result.right else 1
