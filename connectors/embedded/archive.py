"""Class-data archives: the loaded classes of a server, which its JVM maps at start instead of loading them.

A JVM writes such an archive at a regular exit with ``-XX:ArchiveClassesAtExit`` (JEP 350, Java 13), and maps it
with ``-XX:SharedArchiveFile``. It validates the archive against its own version and class path, and starts without an
archive that does not match. Sandbox servers are usually killed, so archives are recorded explicitly: see `recording`.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from trueup.connectors.embedded.jars import cache_dir
from trueup.connectors.embedded.java import java

_drafts: dict[Path, Path] | None = None
"""During a recording: the file that a JVM writes, by the resulting archive."""


def flags(classpath: Sequence[Path], main: Sequence[object]) -> list[str]:
    """JVM flags for a class path and a main class with its options: use the archive, or write it during a recording."""
    place = _place(classpath, main)
    if place.exists():
        return [f"-XX:SharedArchiveFile={place}"]
    if _drafts is None or place in _drafts:
        return []
    _drafts[place] = place.with_suffix(f".{os.getpid()}")
    return [f"-XX:ArchiveClassesAtExit={_drafts[place]}"]


@contextmanager
def recording() -> Iterator[None]:
    """A context in which every first JVM of its kind writes an archive when it exits, which must be regular and within
    the context. Starts are slower meanwhile, and exits take seconds longer."""
    global _drafts
    cache_dir().joinpath("classes").mkdir(parents=True, exist_ok=True)
    _drafts = {}
    try:
        yield
    finally:
        written, _drafts = _drafts, None
    for place, draft in written.items():
        if draft.exists():  # a killed JVM wrote none
            draft.replace(place)


def _place(classpath: Sequence[Path], main: Sequence[object]) -> Path:
    """Keyed by Java, class path and main class: the paths of a set's jars contain their digests."""
    name = next(str(word) for word in main if not str(word).startswith("-"))
    binary = java().resolve()
    key = f"{binary} {binary.stat().st_mtime_ns} {':'.join(map(str, classpath))} {name}"
    return cache_dir() / "classes" / f"{name.rpartition('.')[2]}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsa"
