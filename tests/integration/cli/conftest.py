"""Commands of a sandbox that a module started in its ``root``."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trueup.streams.cli.main import invoke


@pytest.fixture
def ask(root: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs `trueup sandbox` with these words and returns its JSON."""

    def run(*words: str) -> Any:
        capsys.readouterr()
        assert invoke(["sandbox", *words, "--dir", str(root), "-o", "json"]) == 0
        return json.loads(capsys.readouterr().out)

    return run
