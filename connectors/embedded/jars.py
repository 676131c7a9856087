"""Locked jars: fetched by exact Maven coordinates, verified against the lock, cached per user.

A set is a text file ``locks/<set>.lock`` with one line for each jar (size in bytes):
``sha256 size group:artifact:version[:classifier]``. jgo knows the public repository; ``TRUEUP_MAVEN`` sets a mirror
instead. Lines that start with # describe the origin of the set; see `connectors.embedded.relock`. `add_locks` adds sets
that are not a part of the product.
"""

import fcntl
import hashlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from jgo.maven import MavenContext, PythonResolver
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_exponential

from trueup.state.common.errors import BadBytes, Retry, Stop

Progress = Callable[[int, int], None]
PARALLEL = 8
_added: list[Path] = []
"""Folders of further locks."""


@dataclass(frozen=True, slots=True)
class Jar:
    """One line of a lock."""

    sha256: str
    size: int
    """The size of the jar in bytes."""
    group: str
    artifact: str
    version: str
    classifier: str = ""

    @property
    def coordinates(self) -> str:
        """``group:artifact:version[:classifier]``."""
        return ":".join(filter(None, (self.group, self.artifact, self.version, self.classifier)))

    @property
    def file_name(self) -> str:
        """The file name in Maven."""
        return "-".join(filter(None, (self.artifact, self.version, self.classifier))) + ".jar"


def jars(name: str, progress: Progress | None = None) -> list[Path]:
    """The verified files of one set, in the order of its lock; missing files are fetched first.

    ``progress`` is called with (bytes done, total bytes) from any thread. Raises `Stop` for an unknown set or a jar
    that differs from the lock, `Retry` if the repository does not respond.
    """
    return fetch(parse(lock_text(name), f"{name}.lock"), progress)


def fetch(archives: Sequence[Jar], progress: Progress | None = None) -> list[Path]:
    """Like `jars`, for given jars."""
    if not all(map(_is_cached, archives)):
        with _only_one_process():
            _fetch_all([jar for jar in archives if not _is_cached(jar)], progress or _ignore)
    return [_place(jar) for jar in archives]


def sets() -> list[str]:
    """Names of the product's sets."""
    return _named(_product())


def add_locks(folder: Path) -> None:
    """Also find the sets of a folder, in this process: those that only tests need."""
    if folder not in _added:
        _added.append(folder)


def lock_text(name: str) -> str:
    """The lock of a set. Raises `Stop` if there is none."""
    folders = [_product(), *_added]
    for folder in folders:
        if name in _named(folder):
            return (folder / f"{name}.lock").read_text()
    known = ", ".join(known for folder in folders for known in _named(folder))
    raise Stop(f"one of the jar sets {known}", repr(name), "use one of these")


def _product() -> Traversable:
    return files("trueup.connectors.embedded") / "locks"


def _named(folder: Traversable) -> list[str]:
    return sorted(entry.name.removesuffix(".lock") for entry in folder.iterdir() if entry.name.endswith(".lock"))


def parse(text: str, where: str) -> list[Jar]:
    """Parse the jars of a lock. Raises `BadBytes` at the first invalid line."""
    entries, at = [], 0
    for line in text.splitlines(keepends=True):
        if line.strip() and not line.startswith("#"):
            entries.append(_parse_line(line.strip(), where, at))
        at += len(line.encode())
    return entries


def verify(jar: Jar, path: Path) -> None:
    """Raises `Retry` if the file is short (a broken transfer), `Stop` if it is not the jar of the lock."""
    size = path.stat().st_size
    if size < jar.size:
        raise Retry(f"{jar.size} bytes of {jar.coordinates}", f"{size} bytes", "fetch it again")
    with path.open("rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    if sha256 != jar.sha256:
        raise Stop(
            f"{jar.coordinates} with sha256 {jar.sha256}",
            f"sha256 {sha256}",
            "do not use it; check the path to the Maven repository",
        )


def cache_dir() -> Path:
    """The user's cache of jars: $TRUEUP_CACHE, else $XDG_CACHE_HOME/trueup, else ~/.cache/trueup."""
    if own := os.environ.get("TRUEUP_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "trueup"


def _parse_line(line: str, where: str, at: int) -> Jar:
    words = line.split()
    parts = words[-1].split(":")
    if len(words) != 3 or len(words[0]) != 64 or not words[1].isdigit() or len(parts) not in (3, 4) or not all(parts):
        raise BadBytes(where, at, "sha256 size group:artifact:version[:classifier]", repr(line))
    return Jar(words[0], int(words[1]), *parts)


def _place(jar: Jar) -> Path:
    """The path of a verified file: a file is moved there only after its digest was checked."""
    return cache_dir() / "jars" / jar.sha256[:16] / jar.file_name


def _is_cached(jar: Jar) -> bool:
    try:
        return _place(jar).stat().st_size == jar.size
    except FileNotFoundError:
        return False


@contextmanager
def _only_one_process() -> Iterator[None]:
    cache_dir().mkdir(parents=True, exist_ok=True)
    with (cache_dir() / "fetch.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in cache_dir().glob("fetch-*"):  # left by a killed process
            shutil.rmtree(left)
        yield


def _fetch_all(missing: list[Jar], progress: Progress) -> None:
    report = _Counter(sum(jar.size for jar in missing), progress)
    with ThreadPoolExecutor(PARALLEL) as pool:
        for done in [pool.submit(_fetch, jar, report) for jar in sorted(missing, key=lambda jar: -jar.size)]:
            done.result()


@retry(
    retry=retry_if_exception_type(Retry),
    stop=stop_after_attempt(4),
    wait=wait_exponential(multiplier=0.5),
    reraise=True,
)
def _fetch(jar: Jar, report: "_Counter") -> None:
    place, counted = _place(jar), 0
    place.parent.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def watch(_file: str, _size: int) -> Iterator[Callable[[int], None]]:
        def add(count: int) -> None:
            nonlocal counted
            counted += count
            report.add(count)

        yield add

    with tempfile.TemporaryDirectory(prefix="fetch-", dir=cache_dir()) as staging:
        try:
            got = _resolve(jar, Path(staging), PythonResolver(progress_callback=watch))
            verify(jar, got)
        except Retry:
            report.add(-counted)
            raise
        got.replace(place)
    report.add(jar.size - counted)


def _resolve(jar: Jar, staging: Path, resolver: PythonResolver) -> Path:
    """Fetch the jar with jgo. The staging directory is new each time, as jgo accepts partial files."""
    mirror = os.environ.get("TRUEUP_MAVEN")
    repositories = {"mirror": mirror.rstrip("/")} if mirror else None
    context = MavenContext(resolver=resolver, repo_cache=staging, remote_repos=repositories, timeout=60)
    artifact = context.project(jar.group, jar.artifact).at_version(jar.version).artifact(jar.classifier)
    try:
        return Path(artifact.resolve())
    except (OSError, RuntimeError) as error:
        todo = "check the network and its proxy (HTTPS_PROXY), or set a mirror in TRUEUP_MAVEN"
        raise Retry(f"{jar.coordinates} from the Maven repository", str(error), todo) from error


class _Counter:
    """Adds up bytes from several threads."""

    def __init__(self, total: int, progress: Progress) -> None:
        self._lock, self._done, self._total, self._progress = threading.Lock(), 0, total, progress

    def add(self, count: int) -> None:
        with self._lock:
            self._done += count
            self._progress(self._done, self._total)


def _ignore(_done: int, _total: int) -> None:
    pass
