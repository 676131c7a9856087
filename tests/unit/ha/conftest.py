"""A topic of instances in memory, and its clock."""

import pytest

from tests.unit.ha.instances import Clock, Log


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def now() -> Clock:
    return Clock()
