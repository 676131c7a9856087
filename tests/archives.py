"""The class-data archive of Spark's driver: see `tests.record_archives`."""

import hashlib
import os
import sys
from pathlib import Path

from trueup.connectors.sandbox.jvm.java import java
from trueup.connectors.sandbox.servers.spark import spark_home

OPTIONS = "SPARK_SUBMIT_OPTS"
"""What Spark's launcher adds to the flags of a driver (SparkSubmitCommandBuilder.java)."""


def spark_archive() -> Path:
    """Where the archive of Spark's driver is. Its class path is that of one environment."""
    binary, jars = java().resolve(), spark_home() / "jars"
    key = f"{binary} {binary.stat().st_mtime_ns} {jars} {jars.stat().st_mtime_ns}"
    return Path(sys.prefix) / f"spark-{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsa"


def use() -> None:
    """Let every Spark that this process starts use its archive, if there is one."""
    if spark_archive().exists():
        os.environ.setdefault(OPTIONS, f"-XX:SharedArchiveFile={spark_archive()}")
