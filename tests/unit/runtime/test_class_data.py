"""The class-data archive of Spark's JVM is found where it is recorded; one that does not fit is ignored."""

import subprocess
import sys
from pathlib import Path

import pytest

from trueup.connectors.embedded.java import java
from trueup.streams.runtime.spark import class_data


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Packages and a cache without an archive."""
    (tmp_path / "packages").mkdir()
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "packages"))
    monkeypatch.setenv("TRUEUP_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_without_an_archive_there_is_no_flag() -> None:
    assert class_data.flags() == ""


def test_an_archive_beside_the_packages_is_used(places: Path) -> None:
    class_data.target().touch()
    assert class_data.flags() == f"-XX:SharedArchiveFile={places}/packages/{class_data.target().name}"


def test_an_archive_is_in_the_cache_if_packages_are_not_writable(places: Path) -> None:
    (places / "packages").rmdir()
    class_data.target().touch()
    assert class_data.recorded() == places / "cache" / "classes" / class_data.target().name


def test_a_jvm_starts_without_an_archive_that_does_not_fit(places: Path) -> None:
    class_data.target().write_bytes(b"no archive")
    assert subprocess.run([java(), class_data.flags(), "-version"], capture_output=True, check=False).returncode == 0
