"""A Pulsar cluster with tiered storage, and topics to read.

The broker has no cache, the second compiler and 1 GB; sizes of blocks and entries of ledgers are Pulsar's defaults, but
a ledger ends at `LEDGER_MB` rather than 2 GB, so that topics of this size have several.
"""

from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import pulsar

from bench.common.measure import Failed, tell
from bench.replication.clusters import VALUES, values_of
from trueup.sandbox.forgetting import listed, offload, unload
from trueup.sandbox.pulsar import SandboxPulsar

NAMESPACE, LEDGER_MB, LEDGER_ENTRIES = "public/default", 64, 50_000
_SETTINGS = {"managedLedgerOffloadDeletionLagMs": 86_400_000, "managedLedgerOffloadMaxBlockSizeInBytes": 64 << 20}
_JVM = ("-Xmx1g", "-XX:MaxDirectMemorySize=1g", "-XX:TieredStopAtLevel=4", "-XX:-UseSerialGC", "-XX:+UseG1GC")
_BOOKIE_JVM = ("-Xms256m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m", "-XX:+UseSerialGC")
_BATCHED = {
    "batching_enabled": True,
    "batching_max_messages": 1_000,
    "batching_max_allowed_size_in_bytes": 128 << 10,
    "batching_max_publish_delay_ms": 20,
}


class Load(NamedTuple):
    """A topic of ``messages`` messages of ``size`` bytes with keys."""

    size: int
    batched: bool
    messages: int

    @property
    def topic(self) -> str:
        return f"load-{self.size}-{'batched' if self.batched else 'alone'}"

    @property
    def name(self) -> str:
        return f"{self.size:,} B, {'batched' if self.batched else 'not batched'}"

    @property
    def bytes(self) -> int:
        """Bytes of all values."""
        return self.size * self.messages


class Cluster:
    """The servers. ``share``: ledgers are shorter by this factor. ``ends``: the last entry to read of each topic, as a
    message id."""

    def __init__(self, root: Path, share: int) -> None:
        sizes = {
            "managedLedgerMaxEntriesPerLedger": LEDGER_ENTRIES // share,
            "managedLedgerMaxSizePerLedgerMbytes": LEDGER_MB // share,
        }
        settings = {**_SETTINGS, **sizes}
        self.pulsar = SandboxPulsar(root, settings=settings, tiered=True, flags=_BOOKIE_JVM, broker_flags=_JVM)
        self.ends: dict[str, str] = {}

    def __enter__(self) -> Self:
        self.pulsar.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.pulsar.close()

    def fill(self, load: Load) -> None:
        """Write a load, close its last ledger, and write one message more, without which that cannot be offloaded."""
        tell(f"writing {load.messages:,} messages, {load.name}")
        client = pulsar.Client(self.pulsar.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        try:
            _write(client, load)
            name = f"{NAMESPACE}/{load.topic}"
            unload(self.pulsar, name)
            listed(self.pulsar, name)
            _write(client, load._replace(messages=1))
        finally:
            client.close()
        *closed, _ = (one for one in self.pulsar.ask("GET", f"persistent/{name}/internalStats")["ledgers"])
        filled = [one for one in closed if one["entries"]]
        self.ends[load.topic] = f"{filled[-1]['ledgerId']}:{filled[-1]['entries'] - 1}"

    def offload(self, load: Load) -> None:
        """Copy all that is read of a topic to tiered storage, from where the broker then reads it."""
        tell(f"offloading {load.name}")
        offload(self.pulsar, f"{NAMESPACE}/{load.topic}")


def _write(client: pulsar.Client, load: Load) -> None:
    values, errors = values_of(load.size), Counter[str]()
    producer = client.create_producer(
        f"persistent://{NAMESPACE}/{load.topic}",
        block_if_queue_full=True,
        max_pending_messages=20_000,
        **(_BATCHED if load.batched else {"batching_enabled": False}),
    )

    def sent(result: pulsar.Result, _: object) -> None:
        if result != pulsar.Result.Ok:
            errors[str(result)] += 1

    for number in range(load.messages):
        producer.send_async(values[number * 2_654_435_761 % VALUES], sent, partition_key=f"{number:08d}")
    producer.flush()
    producer.close()
    if errors:
        raise Failed(f"messages that were not written: {dict(errors)}")
