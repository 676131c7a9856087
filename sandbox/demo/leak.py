"""`trueup demo leak`: a Pulsar broker stops before it deletes ledgers; Trueup finds them, deletes them, and confirms
the deletion."""

import os
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from trueup.connectors.s3.store import BucketLocation, ObjectStore
from trueup.sandbox import forgetting
from trueup.sandbox.demo.application import DemoApplication
from trueup.sandbox.demo.rack_drill import fetch, printer, seconds
from trueup.sandbox.demo.waiting import Say, made, start_cluster, wait_for
from trueup.sandbox.messages import LiveWriter, MessageClient
from trueup.sandbox.pulsar import BUCKET, NAME, OFFLOADER, SandboxPulsar
from trueup.sandbox.servers.objects import CREDENTIALS, REGION
from trueup.state.common.counts import many
from trueup.state.common.errors import Retry, TrueupError
from trueup.state.deletion.orphan_objects import ORPHANS
from trueup.streams.rows import Row
from trueup.streams.runtime.format import short, size
from trueup.streams.runtime.spark.session import line

TENANT = "public/default"
FORGETTING, KEEPING, LIVE = ("clicks", "orders", "payments"), ("invoices",), "stream"
OFFLOADED = "archive"
ORPHAN, ENDS = "00000000-0000-4000-8000-000000000000", ("", "-index")
"""UUID of an incomplete offload, and the suffixes of data and index."""
MESSAGES, BYTES = 400, 4_000
EMPTY = 2
GRACE_S = 10.0
SET = "pulsar-4.2.4"


@dataclass(slots=True)
class LeakResult:
    """The result of the demo."""

    found: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """The number of reported ledgers and their bytes, by rule and owner."""
    forgotten: int = 0
    confirmed: int = 0
    left: list[int] = field(default_factory=list)
    """The ids of ledgers that should be deleted and still exist."""
    harmed: list[int] = field(default_factory=list)
    """The ids of ledgers that should not be deleted and do not exist."""
    read: int = 0
    missing: int = 0
    live: int = 0
    disk: tuple[int, int] = (0, 0)
    """The bytes of the entry logs of all bookies, before and after the deletion."""
    tiered: tuple[int, int] = (0, 0)
    """The bytes in tiered storage, before and after the deletion."""
    orphans: int = 0
    """The number of unreferenced objects that remain in tiered storage."""
    first_s: float = 0.0
    took_s: float = 0.0

    @property
    def right(self) -> bool:
        """All unreferenced ledgers are deleted, no others are, and every message can be read."""
        done = self.confirmed == self.forgotten > 0
        return done and not (self.left or self.harmed or self.missing or self.orphans) and self.live > 0


def main() -> int:
    """Run the demo; returns 0 only if all unreferenced ledgers are deleted and no others."""
    err = Console(stderr=True, highlight=False, soft_wrap=True)
    fetch(err, (SET, OFFLOADER, "bookkeeper-4.17.3", "kafka-4.3.1", line().jars))
    with tempfile.TemporaryDirectory(prefix="trueup-leak-") as place:
        result = run(Path(place), printer(err))
    out = Console(highlight=False, soft_wrap=True)
    for table in screens(result):
        out.print(table)
        out.print()
    return 0 if result.right else 1


def run(root: Path, say: Say) -> LeakResult:
    """Run the demo on its own servers below ``root``."""
    with SandboxPulsar(root / "pulsar", settings={"managedLedgerMaxEntriesPerLedger": 50}, tiered=True) as pulsar:
        os.environ.update(CREDENTIALS)
        say("starting ZooKeeper, two bookies, an object store and a Pulsar broker")
        start_cluster(pulsar, say)
        with MessageClient(pulsar.service_url) as messages:
            return LeakDemo(pulsar, messages, root, say).run()


class Deleting(DemoApplication):
    """Trueup with queries about deletions."""

    def rows(self, what: str) -> list[Row]:
        """Rows as `trueup get` lists them."""
        rows: list[Row] = self._api.get(what, limit=10_000)
        return rows

    def approve(self) -> None:
        """Approve objects that wait for approval."""
        rows = [row for row in self.rows("plan") if row["stage"] == "awaiting approval"]
        if rows:
            self._api.post("approve", {"ids": [row["id"] for row in rows]})

    def deletions(self) -> dict[str, int]:
        """Pending deletions by stage."""
        status = self.status()
        return dict(status["deletion"]["deletions"]) if status and status["deletion"] else {}


class LeakDemo:
    """The steps, on a running cluster."""

    def __init__(self, pulsar: SandboxPulsar, messages: MessageClient, root: Path, say: Say) -> None:
        self._pulsar, self._messages, self._root, self._say = pulsar, messages, root, say
        self._readable: dict[str, tuple[int, ...]] = {}
        self._going: set[int] = set()
        self._store = ObjectStore(BucketLocation(BUCKET, REGION, pulsar.objects.endpoint, *CREDENTIALS))
        self._staying: set[int] = set()
        self.result = LeakResult()

    def run(self) -> LeakResult:
        """Run all steps."""
        begun, result = time.monotonic(), self.result
        topics = [topic(name) for name in (*FORGETTING, *KEEPING, OFFLOADED)]
        self._say(f"writing {MESSAGES} messages to each of {len(topics)} topics, 50 to a ledger")
        for name in topics:
            # All ledgers except the last one with a message are offloaded, so one more message is written.
            self._messages.write(name, range(MESSAGES + (name == topic(OFFLOADED))), BYTES)
        with self._messages.writer(topic(LIVE), pause_s=0.01) as live:
            self._forget()
            disk, tiered = self._disk(), self._tiered()
            for name in topics:
                self._readable[name] = self._messages.read(name).numbers
            self._delete()
            self._verify(live)
        result.disk, result.tiered = (disk, self._disk()), (tiered, self._tiered())
        result.took_s = time.monotonic() - begun
        return result

    def _forget(self) -> None:
        self._say(
            "the topics remove their old ledgers; ZooKeeper denies the deletions, and the broker is killed (SIGKILL)"
        )
        self._say(
            f"topic {OFFLOADED} is offloaded to tiered storage; its metadata count the BookKeeper ledgers as deleted"
        )
        lists = made(
            "the topics to remove their ledgers, and the broker to be back",
            lambda: forgetting.forget(self._pulsar, [topic(name) for name in (*FORGETTING, OFFLOADED)], _drop),
            self._say,
        )
        self._strand()
        owner = f"{TENANT}/persistent/{FORGETTING[0]}"
        empty = {forgetting.plant(self._pulsar, forgetting.data_of(owner)) for _ in range(EMPTY)}
        self._staying = {
            forgetting.plant(self._pulsar, {"application": "an-own-one"}),
            forgetting.plant(self._pulsar, forgetting.data_of(f"{TENANT}/persistent/deleted-topic")),
        }
        # Only a later ledger on the list shows that the empty ones will never be listed.
        forgetting.unload(self._pulsar, topic(FORGETTING[0]))
        self._messages.write(topic(FORGETTING[0]), range(MESSAGES, MESSAGES + 10), BYTES)
        forgotten = {ledger for ledgers in lists.values() for ledger in ledgers}
        self._say(f"the broker is back; {many(len(forgotten), 'ledger')} in BookKeeper without a reference")
        self._going = forgotten | empty
        self.result.forgotten = len(self._going)

    def _strand(self) -> None:
        """Leave objects of an offload that the broker could not record."""
        key = next(o.key for page in self._store.objects() for o in page if not o.key.endswith(ENDS[1]))
        for end in ENDS:
            self._pulsar.objects.copy(BUCKET, key + end, ORPHAN + key[len(ORPHAN) :] + end)

    def _tiered(self) -> int:
        """Bytes in tiered storage; also counts its unreferenced objects."""
        objects = [o for page in self._store.objects() for o in page]
        self.result.orphans = sum(o.key.startswith(ORPHAN) for o in objects)
        return sum(o.size for o in objects)

    def _delete(self) -> None:
        with Deleting(self._settings(), self._root / "trueup", self._say) as trueup:
            self._say("starting Trueup in mode observe")
            begun = time.monotonic()
            leaked = self._going | self._staying
            wait_for("the unreferenced ledgers to be found", lambda: _are_found(trueup, leaked), self._say)
            self.result.first_s = time.monotonic() - begun
            self._note(_rows(trueup), leaked)
            self._say(f"mode enforce: each is deleted after {GRACE_S:.0f} s without reference and another check")
            self._say("unreferenced objects in tiered storage require approval; the demo approves them at once")
            trueup.set("deletion.mode", "enforce")
            self._follow(trueup, len(self._going))

    def _note(self, rows: list[Row], leaked: set[int]) -> None:
        ledgers, sizes = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        for row in rows:
            if row["ledger"] in leaked:
                ledgers[row["rule"], row["owner"]] += 1
                sizes[row["rule"], row["owner"]] += row["bytes"]
        self.result.found = {what: (count, sizes[what]) for what, count in ledgers.items()}
        for (rule, owner), (count, length) in sorted(self.result.found.items()):
            self._say(f"  {short(rule)}: {many(count, 'ledger')}, {size(length)}, of {owner or 'an unknown owner'}")

    def _follow(self, trueup: Deleting, count: int) -> None:
        printed, objects = "", list[str]()

        def ended() -> bool:
            nonlocal printed, objects
            trueup.approve()
            stages = trueup.deletions()
            done = [r["rule"] for r in trueup.rows("actions") if (r["kind"], r["outcome"]) == ("deletion", "confirmed")]
            objects = [rule for rule in done if rule in ORPHANS]
            self.result.confirmed = len(done) - len(objects)
            text = "  ".join(f"{stage} {number}" for stage, number in sorted(stages.items()))
            if text != printed:
                printed = text
                self._say(f"  {text}  confirmed {self.result.confirmed}")
            return self.result.confirmed >= count and bool(objects)

        try:
            wait_for("every deletion to be confirmed", ended, self._say, lambda: f"{self.result.confirmed} of {count}")
        except Retry as error:  # what is left is counted
            self._say(str(error))

    def _verify(self, live: LiveWriter) -> None:
        self._say("reading every message of every topic")
        result = self.result
        for name, numbers in self._readable.items():
            received = self._messages.read(name)
            result.read += len(received.numbers)
            result.missing += len(set(numbers) - set(received.numbers)) + received.incorrect
        written = live.stop()
        received = self._messages.read(topic(LIVE))
        result.live, result.read = len(written), result.read + len(received.numbers)
        result.missing += len(received.missing(written)) + received.incorrect
        self._look_at_ledgers()

    def _look_at_ledgers(self) -> None:
        """Check in ZooKeeper the ledgers that should be deleted and those that should remain."""
        listed = [
            i for name in (*FORGETTING, *KEEPING, OFFLOADED, LIVE) for i in forgetting.listed(self._pulsar, topic(name))
        ]
        with forgetting.session(self._pulsar.zookeeper.address) as zookeeper:
            self.result.left = [i for i in self._going if zookeeper.exists(forgetting.path(i))]
            staying = {*listed, *self._staying} - self._going  # a ledger that is counted as deleted is still listed
            self.result.harmed = sorted(i for i in staying if not zookeeper.exists(forgetting.path(i)))

    def _disk(self) -> int:
        """Bytes of the bookies' entry logs."""
        logs = self._pulsar.root.glob("bookie*/ledgers/current/*.log")
        return sum(path.stat().st_blocks * 512 for path in logs)

    def _settings(self) -> Mapping[str, object]:
        zookeeper = str(self._pulsar.zookeeper.address)
        return {
            "cluster": {"zookeeper": zookeeper, "name": "lab"},
            "deletion": {
                "owners": "pulsar",
                "instance": instance(zookeeper),
                "exclusive": True,
                "grace_s": GRACE_S,
                "confirm_s": 2.0,
                "retry_s": 2.0,
                "deletes_per_s": 10.0,
            },
            "stores": {
                OFFLOADED: {
                    "bucket": BUCKET,
                    "region": REGION,
                    "endpoint": self._pulsar.objects.endpoint,
                    "cluster": NAME,
                    "list_s": 2.0,
                    **dict(zip(("key_env", "secret_env"), CREDENTIALS, strict=True)),
                }
            },
            "spark": {"buckets": 8, "memory": "1g"},
        }


def _drop(pulsar: SandboxPulsar, name: str) -> list[int]:
    return (forgetting.drop_offloaded if name == topic(OFFLOADED) else forgetting.truncate)(pulsar, name)


def _are_found(trueup: Deleting, leaked: set[int]) -> bool:
    """Whether these ledgers and objects are reported."""
    rows = _rows(trueup)
    return leaked <= {row["ledger"] for row in rows} and any(row["rule"] in ORPHANS for row in rows)


def _rows(trueup: Deleting) -> list[Row]:
    try:
        return trueup.rows("unreferenced")
    except TrueupError:
        return []


def topic(name: str) -> str:
    """Full name of a topic."""
    return f"{TENANT}/{name}"


def instance(zookeeper: str) -> str:
    """INSTANCEID of the BookKeeper cluster, read as an operator would."""
    with forgetting.session(zookeeper) as client:
        return str(client.get("/ledgers/INSTANCEID")[0].decode())


def screens(result: LeakResult) -> list[Table]:
    """Tables of findings and results."""
    findings = Table(title="Unreferenced ledgers", title_justify="left", box=None, pad_edge=False)
    for name in ("RULE", "OWNER"):
        findings.add_column(name)
    for name in ("LEDGERS", "BYTES"):
        findings.add_column(name, justify="right")
    for (rule, owner), (count, length) in sorted(result.found.items()):
        findings.add_row(short(rule), owner or "not known", str(count), size(length))
    done = Table(title="Result", title_justify="left", box=None, pad_edge=False)
    done.add_column("")
    done.add_column("", justify="right")
    rows = [
        ("unreferenced ledgers that may be deleted", str(result.forgotten)),
        ("deleted, confirmed by every bookie", str(result.confirmed)),
        ("not deleted", str(len(result.left))),
        ("other ledgers deleted", str(len(result.harmed))),
        ("messages read", f"{result.read:,}"),
        ("  of these by the live writer", f"{result.live:,}"),
        ("messages missing", f"{result.missing:,}"),
        ("entry logs of the bookies before and after", " and ".join(size(length) for length in result.disk)),
        ("tiered storage before and after", " and ".join(size(length) for length in result.tiered)),
        ("unreferenced objects that remain there", str(result.orphans)),
        ("from Trueup's start to the report", seconds(result.first_s)),
        ("the demo took", seconds(result.took_s)),
    ]
    for title, cell in rows:
        done.add_row(title, cell)
    return [findings, done]
