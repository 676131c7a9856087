"""`python -m tests.record_archives`: creates the class-data archives for the servers and Spark of the suite.

Only missing archives are created. Each server is started once and shut down in order, because a JVM writes its archive
only at an orderly exit.
"""

import hashlib
import tempfile
from pathlib import Path

from trueup.connectors.embedded import archive
from trueup.connectors.embedded.jars import cache_dir, lock_text, sets
from trueup.connectors.embedded.java import java
from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.messages import MessageClient
from trueup.sandbox.pulsar import SandboxPulsar
from trueup.sandbox.servers.rocketmq import NameServer, RocketMqBroker
from trueup.sandbox.writer import LedgerWriter
from trueup.state.common.errors import Retry, Stop
from trueup.streams import archive as archives

END_S = 120.0


def record_servers(root: Path) -> None:
    """Start, use and shut down BookKeeper with a client and Kafka, then Pulsar, then RocketMQ."""
    with archive.recording():
        with SandboxCluster(root / "bookkeeper", {"/rack1": 1}, autorecovery=1, kafka=True) as cluster:
            cluster.up()
            with LedgerWriter(cluster) as writer:
                writer.verify(writer.write(1, 1, 1, 20), 20)
                writer._gateway.process.stop(END_S)
            cluster.down(END_S)
        with SandboxPulsar(root / "pulsar", bookies=1) as pulsar:
            pulsar.up()
            with MessageClient(pulsar.service_url) as messages:
                messages.write("public/default/any", range(100), 100)
            pulsar.down(END_S)
        with (
            NameServer(root / "names") as names,
            RocketMqBroker(root / "broker", [names], user=("any", "any password")) as broker,
        ):
            for server in (names, broker):
                server.up()
            for server in (broker, names):
                server.stop(END_S)


def main() -> None:
    """Create the missing archives. A failure is only reported: without an archive, everything starts, but slower."""
    recorded = [Path(__file__).read_text(), *map(lock_text, sets())]
    locks = hashlib.sha256("".join(recorded).encode()).hexdigest()[:16]
    done = cache_dir() / "classes" / f"made-{locks}-{java().resolve().stat().st_mtime_ns}"
    with tempfile.TemporaryDirectory() as root:
        try:
            if not done.exists():
                record_servers(Path(root))
                done.touch()
            archives.record()
        except (Retry, Stop) as error:
            print(f"no class-data archives, servers start slower: {error}")


if __name__ == "__main__":
    main()
