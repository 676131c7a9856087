"""Waits of demos: as long as something moves, and never in silence."""

import ast
import itertools
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError

from trueup.connectors.embedded.server import LocalServer
from trueup.sandbox import demo
from trueup.sandbox.demo import shop, waiting
from trueup.sandbox.demo.application import DemoApplication
from trueup.sandbox.demo.waiting import carry_out, made, output_of, start, wait_for
from trueup.state.common.errors import Retry, Stop

MODULES = sorted(Path(demo.__path__[0]).glob("*.py"))


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LOOK_S", 0.0)
    monkeypatch.setattr(waiting, "SAY_S", 0.0)


def test_a_wait_lasts_as_long_as_something_moves() -> None:
    looks, moves = itertools.count(), itertools.count()
    wait_for("the end", lambda: next(looks) == 100, lambda _: None, lambda: next(moves), still_s=0.05)
    assert next(moves) >= 100


def test_a_wait_ends_when_nothing_moves_and_names_what_is_left() -> None:
    with pytest.raises(Retry, match=r"expected every order; found 68 left for .* s; load .* on .* cores"):
        wait_for("every order", lambda: False, lambda _: None, lambda: "68 left", still_s=0.0)


def test_a_wait_for_trueup_shows_sources_that_are_not_up_and_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = {
        "ready": True,
        "links": [{"link": "h-s", "state": "stalled"}],
        "sources": [
            {"name": "journal", "state": "up", "detail": ""},
            {"name": "spark", "state": "down", "detail": "starting"},
        ],
    }
    monkeypatch.setattr(DemoApplication, "status", lambda _: status)
    said, looks = list[str](), itertools.count()
    DemoApplication({}, tmp_path, said.append).wait_until("all links to copy", lambda _: next(looks) == 3)
    assert "Trueup: ready, spark: starting, link h-s stalled; load" in said[0]


@pytest.mark.parametrize(("load", "slow"), [(0.5, False), (2.0, False), (40.0, True)])
def test_a_wait_shows_what_it_waits_for_and_whether_the_machine_is_too_slow(
    load: float, slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    said, looks = list[str](), itertools.count()
    wait_for("every order", lambda: next(looks) == 3, said.append, lambda: "68 left")
    assert said
    assert all("waiting for every order" in text and "68 left" in text for text in said)
    assert {"too slow" in text for text in said} == {slow}


def own_waits(module: Path) -> Iterator[str]:
    """Waits and starts of a module that are silent, or end at a time of their own."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield from (f"import of {each.name}" for each in node.names if each.name == "wait_until")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            whose, name = ast.unparse(node.func.value), node.func.attr
            limited = any(each.arg == "timeout" for each in node.keywords)
            started = name == "up" and not whose.endswith("here") and module.name != "waiting.py"
            silent = name in ("wait_ready", "communicate") or (name == "result" and node.args)
            if (whose == "subprocess" and limited) or started or silent:
                yield ast.unparse(node)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.stem)
def test_a_demo_has_no_other_waits(module: Path) -> None:
    assert list(own_waits(module)) == []


def test_starts_show_which_servers_are_waited_for() -> None:
    said, shown = list[str](), threading.Event()

    def say(text: str) -> None:
        said.append(text)
        shown.set()

    servers = {"east": SimpleNamespace(up=lambda: shown.wait(60)), "west": SimpleNamespace(up=lambda: shown.wait(60))}
    start(cast("dict[str, LocalServer]", servers), say)
    assert said[0].startswith("  waiting for east and west to respond for 0 s: east, west; load "), said


def test_an_error_of_a_start_ends_the_wait_for_all_and_tells_of_the_machine() -> None:
    def late() -> None:
        raise Retry("west to be ready", "not true after 90 s", "wait longer")

    acts = {"west": late, "east": threading.Event().wait}
    with pytest.raises(
        Retry, match=r"expected west to be ready; found not true after 90 s; load .*; run the demo again"
    ):
        carry_out("both", acts, lambda _: None)


def test_what_is_made_is_returned() -> None:
    assert made("a gateway", lambda: 7, lambda _: None) == 7


def test_a_command_that_lasts_is_shown_and_its_output_returned(tmp_path: Path) -> None:
    said, going = list[str](), tmp_path / "going"

    def say(text: str) -> None:
        said.append(text)
        going.touch()

    script = f"import os, time; print(1, flush=True)\nwhile not os.path.exists({str(going)!r}): time.sleep(0.01)"
    found = output_of("a command", [sys.executable, "-c", script], tmp_path / "errors.log", say)
    assert (found, "waiting for a command to end" in said[0]) == ("1\n", True)


def test_a_command_that_fails_tells_its_last_lines(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such topic')"]
    with pytest.raises(Stop, match="a command to succeed; found exit code 1, and last on stderr: no such topic"):
        output_of("a command", command, tmp_path / "errors.log", lambda _: None)


class Consumer:
    """A consumer that gets an order in each look, and after some of them the ends of all partitions."""

    def __init__(self) -> None:
        self._looks = itertools.count()

    def assign(self, _: object) -> None:
        """Every partition."""

    def close(self) -> None:
        """Nothing is open."""

    def consume(self, _most: int, _wait_s: float) -> list[Any]:
        if next(self._looks) < 20:
            return [SimpleNamespace(error=lambda: None, partition=lambda: 0)]
        end = SimpleNamespace(code=lambda: KafkaError._PARTITION_EOF)
        return [
            SimpleNamespace(error=lambda: end, partition=lambda number=number: number)
            for number in range(shop.PARTITIONS)
        ]


def test_orders_are_read_as_long_as_they_arrive_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    said = list[str]()
    monkeypatch.setattr(shop, "_reader", lambda _: Consumer())
    site = shop.KafkaSite("east", cast("Any", SimpleNamespace(bootstrap="")), said.append)
    assert len(site.records()[0]) == 20
    assert said[0].startswith("  waiting for all of orders at east to be read for 0 s: 1 record; load")
