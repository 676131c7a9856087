"""The Spark session: compatible versions and measured settings.

Jars come from a lock file, because no resolver finds a compatible set of connectors for this version of Spark. In local
mode they are on the driver's class path; a cluster receives them, and the packages, from the driver.
"""

import os
import re
import shlex
import shutil
import struct
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import pyspark
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from trueup.connectors.embedded.java import spark_java_home
from trueup.state.common.errors import Retry, Stop
from trueup.state.settings.settings import Settings
from trueup.streams.runtime.spark import class_data
from trueup.streams.runtime.spark.cluster import bucket_options, jars_of, reach, shipped


class SparkRelease(NamedTuple):
    """Properties that depend on the version of Spark."""

    jars: str
    checkpoint_manager: str


LINES: Mapping[str, SparkRelease] = {
    "4.3": SparkRelease(
        "spark-4.3", "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    )
}
_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
# Most batches are small: the second compiler would use as much CPU as they do.
_JAVA = (
    "-Djava.net.preferIPv4Stack=true",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-XX:+ExitOnOutOfMemoryError",
)
# The default collector lets the heap grow to a multiple of the live objects and needs 60 MB for itself. Metaspace that
# grows over its first limit would collect garbage several times during the start.
_HEAP = ("-XX:+UseSerialGC", "-Xms64m", "-XX:MinHeapFreeRatio=20", "-XX:MaxHeapFreeRatio=40", "-XX:MetaspaceSize=160m")
_JAVA_KEYS = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
MISSED = "6"
"""After the machine was suspended, or cut from the driver, heartbeats fail and no task runs until the JVM ends itself.
With Spark's default of 60 failures that takes up to ten minutes."""
_STOPPED = re.compile("stopped SparkContext|SparkContext has been shutdown|Spark context stopped", re.IGNORECASE)
"""How methods of a context fail that stopped while it was started: on a standalone cluster, after the third attempt to
register, each of 20 s (StandaloneAppClient.scala)."""
_UNREACHED = re.compile(
    r"(java\.net\.(Connect|UnknownHost|NoRouteToHost|SocketTimeout|http\.Http\w*Timeout)|io\.vertx\.[\w.]*Timeout)Exception\b"
)
"""Errors of a server that cannot be reached or does not respond, such as the API server of Kubernetes."""
_SOCKET_BYTES, _SOCKET_NAME = 106, "/.01234567-89ab-cdef-0123-456789abcdef.sock"
"""The maximum length of the path of a Unix domain socket in Java, which is one byte less than that of Linux
(UnixDomainSockets.c of the JDK), and the form of the names that Spark's JVM chooses."""


def line() -> SparkRelease:
    """The line of the installed version of Spark. Raises `Stop` for an untested version."""
    version = ".".join(pyspark.__version__.split(".")[:2])
    if version not in LINES:
        raise Stop(f"pyspark {' or '.join(LINES)}", f"pyspark {pyspark.__version__}", "install the locked requirements")
    return LINES[version]


def session(settings: Settings, data: Path, permanent: int = 0) -> SparkSession:
    """Start the session of the application, which takes seconds. ``permanent``: number of tasks that never end. A
    previous session must have been discarded. Raises `Stop` if the settings or the machine do not permit a session,
    `Retry` if its JVM ended in the meantime, or if the cluster does not accept the application."""
    reach(settings.spark.master)
    shutil.rmtree(data / "spark-local", ignore_errors=True)  # files of a JVM that was killed
    os.environ["JAVA_HOME"] = str(spark_java_home(data / "java"))
    local = not settings.spark.on_cluster
    os.environ.setdefault("PYSPARK_PYTHON", str(_python(data / "python")) if local else sys.executable)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    master = master_of(settings, permanent)
    builder = SparkSession.builder.master(master).appName(f"trueup-{settings.cluster.name}")
    options = _options(settings, data)
    for key, value in options.items():
        builder = builder.config(key, value)
    _launch({"spark.master": master, **options}, data)
    try:
        spark = builder.getOrCreate()
    except Py4JJavaError as error:
        message = error.java_exception.toString()
        if settings.spark.on_cluster and (reason := _unanswered(error)):
            todo = "correct spark.master, or see the log of that cluster"
            raise Retry(f"the Spark cluster at {master} to accept the application", reason, todo) from error
        raise Stop("settings that Spark accepts", message, "correct spark.conf in the settings") from error
    except (Py4JError, OSError) as error:
        raise Retry("a Spark session", f"its JVM ended: {type(error).__name__}", "try again") from error
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _unanswered(error: Py4JJavaError) -> str:
    """Why the cluster did not accept the application; empty if it is not the cluster's fault."""
    cause = error.java_exception
    while cause is not None:
        text = str(cause.toString())
        if _UNREACHED.match(text):
            return text.partition("\n")[0]
        if _STOPPED.search(text):
            return "no answer"
        cause = cause.getCause()
    return ""


def _options(settings: Settings, data: Path) -> dict[str, str]:
    """The properties of the session, by key. Those of the operator replace others, except for options of the JVM, files
    that executors need and redaction, which are joined."""
    spark = settings.spark
    paths, bucket = jars_of(spark, line().jars), bucket_options(spark)
    shipping = shipped(spark, paths, data) if spark.on_cluster else {}
    place = _cluster() if spark.on_cluster else _local(paths)
    properties = {**_common(settings, data), **bucket, **place}
    java = {key: _joined_java(properties.get(key, ""), spark.conf[key]) for key in _JAVA_KEYS if key in spark.conf}
    return {**properties, **spark.conf, **java, **shipping, **_redaction(settings, bucket)}


def _joined_java(ours: str, theirs: str) -> str:
    """Options of the JVM, of which later ones win. A JVM that is given two collectors does not start."""
    kept = [word for word in ours.split(" ") if not (_COLLECTOR.fullmatch(word) and _COLLECTOR.search(theirs))]
    return " ".join([*kept, theirs]).strip()


def _python(target: Path) -> Path:
    """A script that starts this interpreter, for workers on this machine. Spark prepends a zip of its sources to the
    module path, which holds no bytecode: every worker would compile its imports, 0.5 s of CPU each time."""
    path = shlex.quote(os.environ.get("PYTHONPATH", ""))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(f'#!/bin/sh\nexport PYTHONPATH={path}\nexec {shlex.quote(sys.executable)} "$@"\n')
    target.chmod(0o755)
    return target


def _redaction(settings: Settings, bucket: Iterable[str]) -> dict[str, str]:
    """Redact the values of keys that the operator set, and of those of ``bucket``, in all of Spark's pages."""
    name = "spark.redaction.regex"
    ours = [rf"^\Q{key}\E$" for key in (*settings.spark.conf, *bucket) if key != name]
    return {name: "|".join([settings.spark.conf.get(name, "(?i)secret|password|token|access[.]?key"), *ours])}


def _launch(options: Mapping[str, str], data: Path) -> None:
    """Start the JVM with its output in a file, which keeps it, and that of its Python workers, out of the log.

    Options may be secrets, and every user of the machine can read the arguments of a process. The JVM therefore reads
    the options from a file that only this user can read and that is deleted after the start.
    """
    if SparkContext._gateway is not None:
        return
    data.mkdir(parents=True, exist_ok=True)
    out, scratch = data / "spark.out", _scratch(data)
    shutil.rmtree(scratch, ignore_errors=True)  # a JVM that was killed did not remove its files
    scratch.mkdir(mode=0o700)
    with tempfile.TemporaryDirectory(prefix="spark-", dir=data) as folder:
        file = Path(folder, "spark.properties")
        file.write_text("".join(f"{_property(key)}={_property(value)}\n" for key, value in options.items()), "ascii")
        given = os.environ.get(_ARGUMENTS)
        os.environ[_ARGUMENTS] = f"--properties-file {shlex.quote(str(file))} {given or 'pyspark-shell'}"
        try:
            with out.open("ab") as sink:
                how = {"stdout": sink, "stderr": sink, "cwd": _directory(data / "driver")}
                gateway = launch_gateway(None, how)  # type: ignore[no-untyped-call]
                SparkContext._ensure_initialized(gateway=gateway)
        except PySparkRuntimeError as error:
            raise Stop("a JVM for Spark", "it ended at once", f"read the end of {out}") from error
        finally:
            os.environ.pop(_ARGUMENTS)
            os.environ.update({} if given is None else {_ARGUMENTS: given})


def _directory(place: Path) -> Path | None:
    """The directory of the JVM; None: that of this process. PYSPARK_PYTHON may be a path in an archive, which executors
    unpack into their directories. The driver's JVM also starts Python, for the declaration of a state: there, this path
    leads to this interpreter."""
    python = Path(os.environ["PYSPARK_PYTHON"])
    if python.is_absolute() or len(python.parts) == 1:
        return None
    _python(place / python)
    return place


def _property(text: str) -> str:
    """A key or value in the syntax of java.util.Properties."""
    units = struct.iter_unpack(">H", text.encode("utf-16-be"))
    return "".join(chr(unit) if chr(unit).isalnum() and unit < 128 else f"\\u{unit:04x}" for (unit,) in units)


def master_of(settings: Settings, permanent: int) -> str:
    """The effective master. local[N] gets one additional slot for each of the ``permanent`` tasks, which never end: N
    remain for all other tasks."""
    slots = settings.spark.slots
    return settings.spark.master if slots is None else f"local[{slots + permanent}]"


def _common(settings: Settings, data: Path) -> dict[str, str]:
    spark = settings.spark
    return {
        "spark.driver.memory": spark.memory,
        "spark.local.dir": str(data / "spark-local"),
        "spark.sql.warehouse.dir": str(data / "warehouse"),
        "spark.sql.shuffle.partitions": str(spark.partitions),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.checkpointFileManagerClass": line().checkpoint_manager,
        "spark.sql.streaming.minBatchesToRetain": "10",
        "spark.sql.streaming.metricsEnabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        "spark.scheduler.mode": "FAIR",
        "spark.ui.enabled": "true",
        "spark.ui.port": str(spark.ui_port),
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.killEnabled": "false",  # the UI has no authentication
        "spark.log.level": "ERROR",
        # Spark collects garbage at this interval, which returns the memory of a burst to the system.
        "spark.cleaner.periodicGC.interval": "1min",
        "spark.driver.extraJavaOptions": " ".join(
            (*_JAVA, *_HEAP, f"-Djava.io.tmpdir={_scratch(data)}", _log_options(data), class_data.flags())
        ),
        **_sockets(data),
    }


def _scratch(data: Path) -> Path:
    """The JVM's directory for temporary files. In the system's directory they would remain if the JVM is killed."""
    return data / "tmp"


def _sockets(data: Path) -> dict[str, str]:
    """Unix domain sockets between the JVM and Python are in the JVM's directory for temporary files, or in the system's
    one if their paths would be too long there. Without either, ports of the loopback interface are used."""
    enabled, system = "spark.python.unix.domain.socket.enabled", tempfile.gettempdir()
    if _fits(_scratch(data)):
        return {enabled: "true"}
    return {enabled: "true", "spark.python.unix.domain.socket.dir": system} if _fits(system) else {enabled: "false"}


def _fits(directory: Path | str) -> bool:
    return len(os.fsencode(f"{directory}{_SOCKET_NAME}")) <= _SOCKET_BYTES


def _log_options(data: Path) -> str:
    config = data / "log4j2.properties"
    config.parent.mkdir(parents=True, exist_ok=True)
    log = data / "spark.log"
    config.write_text(
        "rootLogger.level = warn\nrootLogger.appenderRef.file.ref = file\n"
        "appender.file.type = File\nappender.file.name = file\n"
        f"appender.file.fileName = {log}\nappender.file.layout.type = PatternLayout\n"
        "appender.file.layout.pattern = %d{ISO8601} %-5p %c{1} %m%n%ex\n"
    )
    return f"-Dlog4j2.configurationFile=file:{config}"


def _local(paths: Iterable[Path]) -> dict[str, str]:
    """The properties of a session whose tasks run in the JVM of the driver."""
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.authenticate": "true",  # with a secret of this JVM: its ports deserialize what any process sends
        "spark.executor.heartbeat.maxFailures": MISSED,
        "spark.driver.extraClassPath": os.pathsep.join(map(str, paths)),
    }


def _cluster() -> dict[str, str]:
    """The properties of a session whose tasks run in executors."""
    return {
        "spark.executor.extraJavaOptions": " ".join(_JAVA),
        "spark.executor.syncLogLevel.enabled": "true",
        "spark.executor.heartbeat.maxFailures": MISSED,
    }
