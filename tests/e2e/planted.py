"""Secrets in an application's settings, and a search of every place that other users can read."""

import mmap
import re
from collections.abc import Iterator
from pathlib import Path

import urllib3

from tests.e2e.trueup import Trueup, words

MARK = b"planted-secret"
"""Part of every secret. Its presence alone counts as a disclosed secret."""
_SHOWN = {"arguments": b"SparkSubmit", "files": b"", "api": b"placement.mode", "spark": b"spark.planted"}
_PAGES = ("environment", "jobs", "stages", "storage", "executors", "SQL", "StreamingQuery")


def secret(what: str) -> str:
    """The secret for this setting."""
    return f"{MARK.decode()}-{what}"


def shown(trueup: Trueup) -> dict[str, list[str]]:
    """Places that contain a secret, by kind: process arguments, files, the API, Spark's pages. Fails if a kind does not
    contain its expected text, because then the search was incomplete."""
    http = urllib3.PoolManager(timeout=30.0)
    kinds = {
        "arguments": ((str(at.pid), " ".join(words(at)).encode()) for at in trueup.processes()),
        "files": ((str(path.name), content) for path, content in _files(trueup)),
        "api": ((path, trueup.get(path)[1].encode()) for path in _addresses(trueup)),
        "spark": ((url, http.request("GET", url).data) for url in _spark(trueup, http)),
    }
    found: dict[str, list[str]] = {}
    for kind, places in kinds.items():
        seen = [(where, MARK in content, _SHOWN[kind] in content) for where, content in places]
        assert any(whole for _, _, whole in seen), f"{kind} without {_SHOWN[kind]!r}"
        found[kind] = [where for where, there, _ in seen if there]
    return found


def _files(trueup: Trueup) -> Iterator[tuple[Path, bytes]]:
    """The log, and all files in the data directory: journal, checkpoints, Spark logs and spill files."""
    for path in [trueup.process.log, *trueup.data.rglob("*")]:
        try:
            if path.is_file() and path.stat().st_size:
                with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                    yield path, MARK if content.find(MARK) >= 0 else b""
        except FileNotFoundError:  # Spark removes old files
            continue


def _addresses(trueup: Trueup) -> list[str]:
    """The pages, and the addresses in the API's index that contain no placeholder."""
    listed = re.findall(r"/((?:api|metrics|healthz|readyz)[\w/-]*)(?=[\" ])", trueup.get("api")[1])
    return ["", "api", "metrics", *(path for path in listed if path != "api/events")]


def _spark(trueup: Trueup, http: urllib3.PoolManager) -> Iterator[str]:
    root = trueup.api("status")["spark_ui"]
    [application] = http.request("GET", f"{root}/api/v1/applications").json()
    yield from (f"{root}/{page}/" for page in _PAGES)
    yield from (f"{root}/api/v1/applications/{application['id']}/{page}" for page in ("environment", "sql", "jobs"))
