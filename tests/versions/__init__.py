"""Suites that run against one version of a system, and the matrix of versions: see `tests.versions.__main__`."""

from pathlib import Path

from trueup.connectors.embedded.jars import add_locks

LOCKS = Path(__file__).parent / "locks"
add_locks(LOCKS)
