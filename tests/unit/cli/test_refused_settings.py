"""Records of the config topic that do not apply: each is removed by the command that the status names."""

import shlex
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.configuration import parse
from tests.unit.runtime.test_unreadable import Broker, journal
from trueup.state.settings.settings import possible_keys
from trueup.streams.api import Application
from trueup.streams.catalog import all_metrics, sections
from trueup.streams.cli.main import invoke
from trueup.streams.config.live import Live
from trueup.streams.journal import repair
from trueup.streams.journal.history import History
from trueup.streams.journal.journal import Journal
from trueup.streams.journal.topic import CONFIG, setting_of
from trueup.streams.runtime.spark.listener import Listener
from trueup.streams.runtime.supervisor import Supervisor
from trueup.streams.web.api import create_app
from trueup.streams.web.server import serve

NAMES = ["", "/", "a/b", "links/gone.mode", "..", "a b", "line\nbreak", "nul\0", "--default", "caf\u00e9", "x" * 300]


class Running(NamedTuple):
    """An application without streams, and its journal."""

    application: Application
    live: Live
    journal: Journal

    @property
    def problems(self) -> list[str]:
        found: list[str] = self.application.status()["problems"]
        return found


def record(name: str, value: str = '"enforce"') -> tuple[str, bytes, dict[str, Any]]:
    return CONFIG, name.encode(), {"name": name, "value": value, "at_ms": 0, "by": ""}


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    made = journal(Broker())
    live = Live(parse({"cluster": {"zookeeper": "127.0.0.1:2181"}}), made, lambda: 0)
    supervisor = Supervisor(threading.Event(), lambda _: None)
    application = Application(live, made, {}, supervisor, Listener(lambda _: None), lambda: 0, History())
    application.other_problems = made.unreadable.problems
    server = serve(create_app(application, all_metrics()), "127.0.0.1", 0)
    monkeypatch.setenv("TRUEUP_API", f"http://127.0.0.1:{server.port}")
    yield Running(application, live, made)
    server.stop()


@pytest.mark.parametrize("name", ["links.gone.mode", "kafka.east.bootstrap", "placement.no_such_key", "cluster.name"])
def test_the_command_that_the_status_names_removes_a_record_that_is_refused(running: Running, name: str) -> None:
    running.journal.put([record(name), record("placement.mode", '"approve"')])
    running.live.load()
    (problem,) = running.problems
    command = shlex.split(problem.split("`")[1])
    code = invoke(command[1:])
    newest = [entry.body for entry in running.journal.entries(CONFIG) if entry.key == name.encode()][-1]
    assert (command[:3], code, newest, running.problems) == (["trueup", "config", "set"], 0, None, [])


@pytest.mark.parametrize("name", NAMES)
def test_a_record_whose_name_no_setting_can_have_is_not_readable_and_a_repair_removes_it(
    running: Running, name: str
) -> None:
    running.journal.put([record(name)])
    running.live.load()
    (problem,) = running.problems
    repair.execute(running.journal, repair.plan(running.journal))
    again = Live(running.live.now, running.journal, lambda: 0)
    again.load()
    assert ("`trueup journal repair` removes it" in problem, running.live.refused) == (True, {})
    assert (running.journal.unreadable.problems(), again.refused) == ([], {})


def test_every_setting_can_be_stored() -> None:
    names = [name for name, _, _ in possible_keys(sections())]
    assert [setting_of({"name": name}).decode() for name in names] == names
