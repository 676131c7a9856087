"""Class-data archives: classes of a server as its JVM wants them in memory, mapped at a start instead of loaded.

A JVM writes such an archive when it ends in order with ``-XX:ArchiveClassesAtExit`` (JEP 350, Java 13), and maps it
with ``-XX:SharedArchiveFile``. It checks the archive against itself and its class path, and starts without one that
does not fit. Servers here are killed more often than not, so archives are made on purpose: see `recording`.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from trueup.connectors.sandbox.jvm.jars import cache_dir
from trueup.connectors.sandbox.jvm.java import java

_drafts: dict[Path, Path] | None = None
"""While archives are recorded: the file that a JVM writes, by the archive that it becomes."""


def flags(classpath: Sequence[Path], main: Sequence[object]) -> list[str]:
    """JVM flags for a class path and a main class with its options: use the archive, or write it while recording."""
    place = _place(classpath, main)
    if place.exists():
        return [f"-XX:SharedArchiveFile={place}"]
    if _drafts is None or place in _drafts:
        return []
    _drafts[place] = place.with_suffix(f".{os.getpid()}")
    return [f"-XX:ArchiveClassesAtExit={_drafts[place]}"]


@contextmanager
def recording() -> Iterator[None]:
    """Every first JVM of its kind that starts within this writes an archive when it ends, which must be in order and
    before this is left. Starts meanwhile are slower; so is the end, by seconds."""
    global _drafts
    cache_dir().joinpath("classes").mkdir(parents=True, exist_ok=True)
    _drafts = {}
    try:
        yield
    finally:
        written, _drafts = _drafts, None
    for place, draft in written.items():
        if draft.exists():  # a JVM that was killed wrote none
            draft.replace(place)


def _place(classpath: Sequence[Path], main: Sequence[object]) -> Path:
    """By Java, class path and main class: the jars of a set have their digests in their paths."""
    name = next(str(word) for word in main if not str(word).startswith("-"))
    binary = java().resolve()
    key = f"{binary} {binary.stat().st_mtime_ns} {':'.join(map(str, classpath))} {name}"
    return cache_dir() / "classes" / f"{name.rpartition('.')[2]}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsa"
