"""The class-data archive of Spark's driver: see `tests.record_archives`."""

import hashlib
import os
import sys
from pathlib import Path

from trueup.connectors.sandbox.jvm.java import java
from trueup.connectors.sandbox.servers.spark import spark_home

OPTIONS = "SPARK_SUBMIT_OPTS"
"""Additional JVM flags of a driver, read by Spark's launcher (SparkSubmitCommandBuilder.java)."""


def spark_archive() -> Path:
    """Path of the archive of Spark's driver. Its class path belongs to one environment."""
    binary, jars = java().resolve(), spark_home() / "jars"
    key = f"{binary} {binary.stat().st_mtime_ns} {jars} {jars.stat().st_mtime_ns}"
    return Path(sys.prefix) / f"spark-{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsa"


def use() -> None:
    """Make every Spark session that this process starts use its archive, if the archive exists."""
    if spark_archive().exists():
        os.environ.setdefault(OPTIONS, f"-XX:SharedArchiveFile={spark_archive()}")
