"""Checkpoints of queries that cannot be read: they are set aside, and the query starts without state.

Everything in a checkpoint is derived from the journal. A checkpoint is damaged after a power failure, on a full disk,
or if somebody deletes files of it. Spark refuses most damages with an error, but not all: without its offsets, a query
starts from the beginning of the journal on the state of its end.

The format of the files is that of Spark's HDFSMetadataLog: a version, then lines of JSON.
"""

import hashlib
import json
import logging
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JJavaError

from trueup.state.common.errors import Retry, Stop
from trueup.state.settings.spark import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)
ASIDE, MOST_ASIDE = ".aside-", 5
LARGEST_FILE = 1 << 24
_VERSION = re.compile(rb"v\d{1,3}")
_UNREADABLE = re.compile(
    r"CANNOT_LOAD_STATE_STORE|MALFORMED_LOG_FILE|INVALID_LOG_VERSION|CHECKPOINT_FILE_CHECKSUM|Incomplete log file"
    r"|MISSING_METADATA_FILE|MISSING_STATE_DIRECTORY|NOT_MATCH_IN_STATE_METADATA|batch \d+ doesn't exist"
    r"|STATE_STORE_\w*(?:CHECKPOINT|CHECKSUM|COMPATIBLE|FORMAT_VALIDATION)|Corruption:"
    r"|FileNotFoundException[^\n]*/(?:state|offsets|commits)/|KAFKA_DATA_LOSS|data may have been lost"
)
"""Texts of Spark's errors about files of a checkpoint, or about positions in it that the journal does not have."""
_FULL = re.compile(r"No space left|[Dd]isk quota exceeded")
"""Of a full disk, which damages nothing that was written before."""


def folder_of(spark: SparkSettings, data: Path) -> str:
    """The location of all checkpoints of the application."""
    return spark.checkpoint.rstrip("/") or own_folder(data)


def own_folder(data: Path) -> str:
    """The location of checkpoints in the data directory."""
    return f"file://{data / 'checkpoints'}"


def standby_of(spark: SparkSettings, data: Path) -> str:
    """The prefix of the checkpoints of the standby with this data directory; others may share its location."""
    if not spark.checkpoint:
        return "standby"
    place = f"{socket.gethostname()} {data}"
    return f"standby-{hashlib.sha256(place.encode()).hexdigest()[:16]}"


def readable(location: str, query: str, error: str, session: "SparkSession | None" = None) -> bool:
    """Whether the checkpoint of a query can be used, or none exists. Otherwise it is set aside and the query starts
    without state. ``error``: the error of repeated attempts, or empty; ``session``: the session that looks at locations
    that are not on this machine. Raises `Stop` if an operator must move the checkpoint."""
    path = local(location)
    why = damage(path) if path else _remote_damage(location, session) if session else ""
    if not why and (match := _UNREADABLE.search(error)) and not _FULL.search(error):
        why = next(line.strip() for line in error.splitlines() if match[0] in line)
    if not why:
        return True
    if path is None:
        raise Stop("a checkpoint that Spark can read", why, f"move {location} away; the view is read from the journal")
    if path.exists():
        _set_aside(path, query, why)
    return False


def local(location: str) -> Path | None:
    """The path of a checkpoint on this machine; None if it is elsewhere."""
    parts = urlsplit(location)
    return Path(unquote(parts.path)) if parts.scheme in ("", "file") else None


def started(location: str, session: "SparkSession | None" = None) -> bool:
    """Whether a query has begun a batch with this checkpoint. One that is not on this machine counts as such, unless a
    ``session`` looks."""
    path = local(location)
    if path is None:
        return session is None or _exists(session, f"{location}/offsets")
    return bool(_batches(path / "offsets"))


def damage(path: Path) -> str:
    """What is missing or unreadable in a checkpoint; empty if nothing is found. State is checked by Spark."""
    offsets, commits = _batches(path / "offsets"), _batches(path / "commits")
    if not offsets:
        state = path / "state"
        left = commits or (state.is_dir() and any(state.iterdir()))
        return "its offsets are missing" if left else ""
    if commits and commits[-1] > offsets[-1]:
        return f"batch {commits[-1]} is committed, but its offsets are missing"
    files = [path / "metadata", path / "offsets" / str(offsets[-1]), *(path / "commits" / str(n) for n in commits[-1:])]
    return next((f"{file.relative_to(path)} {problem}" for file in files if (problem := _problem(file))), "")


def _batches(folder: Path) -> list[int]:
    """The numbers of the batches in a log, ascending."""
    return sorted(int(file.name) for file in folder.iterdir() if file.name.isdecimal()) if folder.is_dir() else []


def _problem(file: Path) -> str:
    try:
        content = file.read_bytes()[:LARGEST_FILE]
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if not content.strip(b"\0\n"):
        return "is empty"
    return "" if all(_is_json(line) for line in _lines(file.name, content)) else "is not complete"


def _lines(name: str, content: bytes) -> Iterator[bytes]:
    """The lines that have to be JSON. A source without offsets is a dash."""
    version, *lines = content.split(b"\n")
    if name == "metadata":
        yield content
    elif not _VERSION.fullmatch(version) or not lines:
        yield b""
    else:
        yield from (line for line in lines if line != b"-")


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _remote_damage(location: str, session: "SparkSession") -> str:
    """What Spark would not notice in a checkpoint that is not on this machine; empty if nothing is found."""
    left = not started(location, session) and _exists(session, f"{location}/state")
    return "its offsets are missing" if left else ""


def _exists(session: "SparkSession", location: str) -> bool:
    """Whether there is anything at a location. Raises `Retry` if it cannot be reached."""
    path, files = _located(session, location)
    try:
        return bool(files.exists(path))
    except Py4JJavaError as error:
        why = error.java_exception.toString()
        raise Retry(f"an answer from {location}", why, "check spark.checkpoint and its rights") from error


def _located(session: "SparkSession", location: str) -> tuple[Any, Any]:
    """Hadoop's path and file system of a location. Raises `Retry` if there is none."""
    jvm: Any = session._jvm
    path = jvm.org.apache.hadoop.fs.Path(location)
    try:
        return path, path.getFileSystem(session.sparkContext._jsc.hadoopConfiguration())
    except Py4JJavaError as error:
        why = error.java_exception.toString()
        raise Retry(f"access to {location}", why, "check spark.checkpoint and its rights") from error


def forget(session: "SparkSession", folder: str, pattern: str, keep: str = "") -> None:
    """Delete the directories in ``folder`` whose names match ``pattern``, except ``keep``. Failures are only logged:
    the next start repeats it."""
    try:
        path, files = _located(session, f"{folder}/{pattern}")
        for directory in files.globStatus(path) or ():
            if directory.getPath().getName() != keep:
                files.delete(directory.getPath(), True)
    except (Py4JJavaError, Retry) as error:
        log.warning("old checkpoints not deleted", extra={"problem": str(error).partition("\n\tat ")[0]})


def _set_aside(path: Path, query: str, why: str) -> None:
    places = (path.with_name(f"{path.name}{ASIDE}{number}") for number in range(1, MOST_ASIDE + 1))
    place = next((place for place in places if not place.exists()), None)
    if place is None:
        raise Stop(
            f"a checkpoint in {path} that can be read",
            f"{why}, and {MOST_ASIDE} were set aside before",
            f"check the disk, then delete {path.name}{ASIDE}*",
        )
    try:
        path.rename(place)
    except OSError as error:
        raise Stop(f"{path} to be renamed", str(error.strerror), "move it away") from error
    log.error("checkpoint set aside", extra={"query": query, "problem": why, "moved_to": str(place)})
