"""The class-data archive of Spark's JVM: the classes of its queries, which a start maps instead of loading them.

See `connectors.embedded.archive`. `python -m trueup.streams.archive` records it, beside the installed
packages, or in the cache of jars if that place is not writable.
"""

import hashlib
import os
import sys
from importlib.util import find_spec
from pathlib import Path

from trueup.connectors.embedded.jars import cache_dir
from trueup.connectors.embedded.java import java

OPTIONS = "SPARK_SUBMIT_OPTS"
"""Additional JVM flags, read by Spark's launcher (SparkSubmitCommandBuilder.java)."""


def flags() -> str:
    """The JVM flag of the archive; empty without one. A JVM that an archive does not fit starts without it."""
    place = recorded()
    return f"-XX:SharedArchiveFile={place}" if place else ""


def recorded() -> Path | None:
    """The archive of this environment; None if there is none."""
    return next((place for place in _places() if place.exists()), None)


def target() -> Path:
    """Where an archive is recorded; its directory exists."""
    beside, cached = _places()
    if os.access(beside.parent, os.W_OK):
        return beside
    cached.parent.mkdir(parents=True, exist_ok=True)
    return cached


def _places() -> tuple[Path, Path]:
    """The class path of an archive belongs to one environment, and its format to one version of Java."""
    package = find_spec("pyspark")
    assert package, "it is a requirement"
    binary, jars = java().resolve(), Path(package.origin or "").parent / "jars"
    # Whole seconds: layers of images keep no parts of them.
    key = f"{binary} {int(binary.stat().st_mtime)} {jars} {int(jars.stat().st_mtime)}"
    name = f"spark-{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsa"
    return Path(sys.prefix) / name, cache_dir() / "classes" / name
