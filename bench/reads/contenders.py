"""The contenders: readers of Pulsar's Java and Python clients, and Trueup's data source in Spark on local[2].

Each is a process that reads a small topic twice to warm up, and then every load once. It measures itself: the time from
the creation of a reader to the last message, CPU seconds, those of the broker, and requests in the object store's log.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.common import jobs
from bench.common.measure import Failed
from bench.reads.cluster import NAMESPACE, Cluster, Load
from trueup.connectors.embedded.jars import jars
from trueup.connectors.embedded.processes import Process
from trueup.connectors.embedded.server import jvm
from trueup.sandbox.pulsar import BUCKET
from trueup.sandbox.servers.objects import CREDENTIALS, REGION

LIMIT_S = 420.0
WARM = Load(1_000, True, 80_000)
"""Two ledgers, so that both Python processes of Spark are warm."""
PRIORITIES = {"BookKeeper": "bookkeeper-first", "tiered storage": "tiered-storage-first"}


class Reading(NamedTuple):
    """The result of one read. ``first_s``: until the first message; ``cpu_s``: of the reader; ``broker_s`` and
    ``bookies_s``: of the servers; ``requests``: to the object store."""

    what: str
    messages: int
    bytes: int
    s: float
    first_s: float
    cpu_s: float
    broker_s: float
    bookies_s: float
    requests: int

    @property
    def mb_per_s(self) -> float:
        return self.bytes / self.s / 1e6

    @property
    def cpu_us(self) -> float:
        """Microseconds of CPU per message."""
        return self.cpu_s / self.messages * 1e6

    @property
    def broker_us(self) -> float:
        return self.broker_s / self.messages * 1e6

    @property
    def requests_per_gb(self) -> float:
        return self.requests / self.bytes * 1e9


class Site(NamedTuple):
    """What to read, and from which tier. ``root``: an empty directory."""

    cluster: Cluster
    loads: Sequence[Load]
    tier: str
    root: Path

    def job(self) -> dict[str, object]:
        """What every contender needs to know."""
        servers = self.cluster.pulsar
        return {
            "service": servers.service_url,
            "broker": servers.broker.pid,
            "log": str(servers.objects.log),
            "bookies": [bookie.pid for bookie in servers.bookies.values()],
            "loads": [[f"{NAMESPACE}/{load.topic}", load.messages] for load in (WARM, WARM, *self.loads)],
        }


def java(site: Site) -> Process:
    """From source code, which requires a JDK."""
    job, root = site.job(), site.root
    root.mkdir(parents=True, exist_ok=True)
    path, program = jars(site.cluster.pulsar.jar_set), Path(__file__).with_name("Read.java")
    loads = [word for load in (WARM, WARM, *site.loads) for word in (f"{NAMESPACE}/{load.topic}", load.messages)]
    pids = ",".join(str(bookie.pid) for bookie in site.cluster.pulsar.bookies.values())
    main = [program, job["service"], job["broker"], pids, job["log"], *loads]
    return jvm("java", root, path, main, ["-Xmx1g", "-XX:MaxDirectMemorySize=1g"])


def python(site: Site) -> Process:
    """The Python client, which is the C++ client."""
    return jobs.driver("bench.reads.drive_python", site.job(), site.root)


def ours(site: Site) -> Process:
    """Spark with Trueup's default settings."""
    servers = site.cluster.pulsar
    store = {
        "bucket": BUCKET,
        "region": REGION,
        "endpoint": servers.objects.endpoint,
        "key_env": "BENCH_KEY",
        "secret_env": "BENCH_SECRET",
    }
    options = {
        "zookeeper": servers.zookeeper.address,
        "priority": PRIORITIES[site.tier],
        **{f"stores.bench.{name}": value for name, value in store.items()},
    }
    key, secret = CREDENTIALS.values()
    job = {
        **site.job(),
        "options": options,
        "ends": site.cluster.ends,
        "data": str(site.root / "data"),
        "environment": {"BENCH_KEY": key, "BENCH_SECRET": secret},
    }
    return jobs.driver("bench.reads.drive_spark", job, site.root)


CONTENDERS: Mapping[str, Callable[[Site], Process]] = {"java": java, "python": python, "ours": ours}


def run(name: str, site: Site) -> dict[str, Reading]:
    """The readings of one contender by topic. Raises `Failed` if it did not read what was written."""
    found = {row["what"]: Reading(**row) for row in jobs.watched(CONTENDERS[name](site), LIMIT_S)}
    readings = {}
    for load in site.loads:
        reading = found[f"{NAMESPACE}/{load.topic}"]
        if (reading.messages, reading.bytes) != (load.messages, load.bytes):
            expected = f"{load.messages} messages of {load.bytes} bytes together"
            raise Failed(f"{name}, {load.name}: {expected}; found {reading.messages} and {reading.bytes}")
        readings[load.name] = reading
    return readings
