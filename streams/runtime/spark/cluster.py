"""What a Spark cluster needs from the driver: jars, the package, and the slots that its executors offer; whether its
master can be reached; and Hadoop's settings of checkpoints in a bucket.

The jars of S3A are those of the AWS SDK that it uses (13 MB), instead of the bundle of the whole SDK (600 MB). Netty
and Apache's HTTP client come with Spark.
"""

import os
import py_compile
import shutil
import socket
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

import trueup
from trueup.connectors.embedded.jars import jars
from trueup.state.common.errors import Retry, Stop
from trueup.state.settings.spark import S3A_SET, SparkSettings

LOOK_S = 5.0
NO_EXECUTOR = "spark.master: expected executors; found none: start workers, or free cores and memory of theirs"
REACH_S = 3.0
_STANDALONE = "spark://"
_DRIVER = "driver"
_SUFFIXES = (".py", ".avsc", ".lock")


def jars_of(spark: SparkSettings, line: str) -> list[Path]:
    """The jars of the line of Spark, and those that the location of the checkpoints needs. They are fetched if they are
    missing. Raises `Stop`, `Retry`."""
    return [path for name in (line, *([S3A_SET] if spark.bucket else ())) for path in jars(name)]


def shipped(spark: SparkSettings, paths: list[Path], data: Path) -> dict[str, str]:
    """The properties by which executors receive jars and the package. An operator may add to both."""
    added = [spark.conf.get(name, "") for name in ("spark.jars", "spark.submit.pyFiles")]
    own = ",".join(map(str, paths)), str(bundle(data / "trueup.zip"))
    return {
        name: ",".join(filter(None, (ours, theirs)))
        for name, ours, theirs in zip(("spark.jars", "spark.submit.pyFiles"), own, added, strict=True)
    }


def bucket_options(spark: SparkSettings, env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Hadoop's settings of the bucket of the checkpoints, its credentials among them; none without a bucket. Raises
    `Stop` if a variable with a credential is not set."""
    if not spark.bucket:
        return {}
    endpoint = spark.checkpoint_endpoint.rstrip("/")
    options = {
        "endpoint.region": spark.checkpoint_region or ("us-east-1" if endpoint else ""),
        "endpoint": endpoint,
        # Services with an S3 API seldom have a host name for each bucket.
        "path.style.access": "true" if endpoint else "",
        "connection.ssl.enabled": "false" if endpoint.startswith("http:") else "",
        "change.detection.mode": "none",
    }
    if spark.checkpoint_key_env:
        options |= {
            "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
            "access.key": _variable(spark.checkpoint_key_env, env),
            "secret.key": _variable(spark.checkpoint_secret_env, env),
        }
    prefix = f"spark.hadoop.fs.s3a.bucket.{spark.bucket}"
    return {f"{prefix}.{name}": value for name, value in options.items() if value}


def _variable(name: str, env: Mapping[str, str]) -> str:
    if not env.get(name):
        raise Stop(f"the variable {name} with a credential of spark.checkpoint", "none", "set it for `trueup run`")
    return env[name]


def reach(master: str) -> None:
    """Return if a master of a standalone cluster accepts a connection, and for other clusters. Raises `Retry`, which
    names the reason. Spark needs a JVM and a minute to find out, and does not name it."""
    refused = []
    for address in master.removeprefix(_STANDALONE).split(",") if master.startswith(_STANDALONE) else ():
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or int(port) >= 1 << 16:
            return  # Spark says what is wrong with it
        try:
            socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()
        except OSError as error:
            refused.append(f"{address}: {error.strerror or error}")
        else:
            return
    if refused:
        raise Retry(f"a Spark master at {master}", "; ".join(refused), "start it, or correct spark.master")


def task_slots(session: SparkSession, on_cluster: bool) -> int:
    """The number of tasks that run at a time: on a cluster, on the executors that are registered now. Raises `Retry` if
    the driver's JVM does not respond."""
    context = session.sparkContext
    try:
        if not on_cluster:
            return context.defaultParallelism
        executors = context._jsc.sc().statusStore().executorList(True)
        task_cores = max(1, int(str(context.getConf().get("spark.task.cpus", "1"))))
        return sum(cores // task_cores for cores in map(_cores, (executors.apply(i) for i in range(executors.size()))))
    except (Py4JError, OSError, AttributeError) as error:  # a context that was stopped has no JVM
        raise Retry("Spark's executors", type(error).__name__, "wait until the session is started again") from error


def _cores(executor: Any) -> int:
    return 0 if executor.id() == _DRIVER else int(executor.totalCores())


class Executors:
    """The executors that a cluster gives the application. ``problem``: a text that there are no executors, or empty."""

    def __init__(self, session: Callable[[], SparkSession]) -> None:
        self._session, self.problem = session, ""

    def look(self) -> None:
        """Look at them."""
        self.problem = "" if task_slots(self._session(), on_cluster=True) else NO_EXECUTOR


def bundle(target: Path) -> Path:
    """Create a zip of the package for executors, which unpickle the operators by name. It has bytecode beside the
    sources: every worker process would otherwise compile what it imports."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_suffix(".part")
    with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive, TemporaryDirectory(dir=target.parent) as scratch:
        root = Path(trueup.__file__).parent
        for folder, _, names in os.walk(root, followlinks=True):
            for path in (Path(folder, name) for name in sorted(names) if name.endswith(_SUFFIXES)):
                place = path.relative_to(root.parent)
                archive.write(path, place)
                if path.suffix == ".py":
                    archive.write(_compiled(path, str(place), Path(scratch)), place.with_suffix(".pyc"))
    shutil.move(draft, target)
    return target


def _compiled(source: Path, name: str, scratch: Path) -> Path:
    """The bytecode of a module, in a file in ``scratch``. Interpreters of another version ignore it."""
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(source), str(scratch / "module.pyc"), name, doraise=True, invalidation_mode=mode)
    return scratch / "module.pyc"
