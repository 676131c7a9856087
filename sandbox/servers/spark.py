"""A Spark standalone cluster on 127.0.0.1, started from the installed pyspark package.

The wheel has no start-master.sh, so the daemons are started through its spark-class, which execs java.
"""

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from trueup.connectors.closing import Closing
from trueup.connectors.embedded.java import spark_java_home
from trueup.connectors.embedded.processes import Port, Process
from trueup.connectors.embedded.server import LocalServer
from trueup.state.common.errors import Stop


def spark_home() -> Path:
    """The directory of the installed pyspark. Raises `Stop` if there is none."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise Stop("pyspark to be installed", "no such package", "install trueup with its dependencies")
    return Path(spec.submodule_search_locations[0])


class Daemon(LocalServer):
    """A master, or a worker of the master at ``master``; its root is ``root``/<name>."""

    def __init__(self, root: Path, name: str, main: Sequence[str], ready: str) -> None:
        super().__init__(name, root / name)
        self.port, self.web = Port(), Port()
        self._main, self._ready = main, ready

    def make(self) -> Process:
        """Small heap; only the configuration given here."""
        conf = self.root / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        listen = ["--host", self.port.host, "--port", self.port.number, "--webui-port", self.web.number]
        environment = {
            "JAVA_HOME": str(spark_java_home(self.root)),
            "SPARK_HOME": str(spark_home()),
            "SPARK_CONF_DIR": str(conf),
            "SPARK_LOCAL_DIRS": str(self.root / "local"),
            "SPARK_LOCAL_IP": self.port.host,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:-UsePerfData -Dspark.master.rest.enabled=false"
            f" -Dspark.worker.cleanup.enabled=true -Djava.io.tmpdir={self.root / 'tmp'}",
        }
        command = [spark_home() / "bin" / "spark-class", *self._main, *listen]
        return Process(self.name, command, self.log, environment, self.root)

    def is_ready(self) -> bool:
        """Whether it logged its readiness."""
        return self._ready in self.process.output()

    def close(self) -> None:
        """Kill it with its executors, and release its ports."""
        super().close()
        self.port.release()
        self.web.release()


class StandaloneSpark(Closing):
    """A master and workers 1..N with ``cores`` task slots and ``memory`` each (Spark's notation, as in 1g).

    The master's REST submission server and authentication are disabled: every client of the master can run code,
    so every port listens on 127.0.0.1 only.
    """

    def __init__(self, root: Path, workers: int = 2, cores: int = 1, memory: str = "1g") -> None:
        root = root.absolute()
        self.master = Daemon(root, "master", ["org.apache.spark.deploy.master.Master"], "I have been elected leader")
        main = ["org.apache.spark.deploy.worker.Worker", self.url, "--cores", str(cores), "--memory", memory]
        self.workers = {
            number: Daemon(
                root,
                f"worker{number}",
                [*main, "--work-dir", str(root / f"worker{number}" / "work")],
                "Successfully registered with master",
            )
            for number in range(1, workers + 1)
        }

    @property
    def url(self) -> str:
        """spark.master for drivers."""
        return f"spark://{self.master.port}"

    @property
    def ui(self) -> str:
        """Address of the master's web page."""
        return f"http://{self.master.web}"

    def up(self) -> None:
        """Start all daemons and wait until the workers have registered."""
        self.master.up()
        for worker in self.workers.values():
            worker.start()
        for worker in self.workers.values():
            worker.wait_ready()

    def close(self) -> None:
        """Kill all daemons with their executors, and release the ports."""
        for daemon in [*self.workers.values(), self.master]:
            daemon.close()
