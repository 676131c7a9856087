"""Where the sockets between Spark's JVM and Python are."""

import tempfile
from pathlib import Path

import pytest

from trueup.streams.runtime.spark.session import _sockets

LONGEST = 105 - len("tmp/.01234567-89ab-cdef-0123-456789abcdef.sock")
ENABLED, PLACE = "spark.python.unix.domain.socket.enabled", "spark.python.unix.domain.socket.dir"


def test_sockets_are_in_the_data_directory_as_long_as_java_takes_their_paths() -> None:
    assert _sockets(Path("/".ljust(LONGEST, "d"))) == {ENABLED: "true"}


def test_sockets_are_in_the_systems_directory_if_their_paths_would_be_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/scratch")
    assert _sockets(Path("/".ljust(LONGEST + 1, "d"))) == {ENABLED: "true", PLACE: "/scratch"}


def test_a_longer_path_in_bytes_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/scratch")
    assert PLACE in _sockets(Path("/".ljust(LONGEST - 1, "d") + "é"))


def test_without_a_short_directory_there_are_no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/".ljust(100, "s"))
    assert _sockets(Path("/".ljust(LONGEST + 1, "d"))) == {ENABLED: "false"}
