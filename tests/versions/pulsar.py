"""Pulsar: owners of ledgers, deletions, topics in both tiers and priorities of reads, by the tests of other suites on
clusters of one version (a plugin of pytest). The offloader is the one of the sandbox."""

import pytest

from tests.versions.given import version
from trueup.sandbox.pulsar import SandboxPulsar

DEMO = "test_the_demo_shows_both"
"""It starts a process of its own, which does not know the version."""


def pytest_configure() -> None:
    """All clusters of this process get the version."""
    SandboxPulsar.version = version()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what says nothing about the version."""
    items[:] = [item for item in items if item.name != DEMO]
