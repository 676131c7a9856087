from types import SimpleNamespace
from typing import Any

from trueup.streams.runtime.spark.listener import Listener


def test_a_query_without_input_is_alive():
    reported: list[str] = []
    listener = Listener(lambda _: None, reported.append, lambda: 7)
    started: Any = SimpleNamespace(id="1", name="placement")
    idle: Any = SimpleNamespace(id="1")
    listener.onQueryStarted(started)
    listener.onQueryIdle(idle)
    assert (reported, listener.last_event_ms) == (["placement", "placement"], {"placement": 7})


def test_progress_is_a_sign_of_life():
    reported: list[str] = []
    listener = Listener(lambda _: None, reported.append)
    progress: Any = SimpleNamespace(progress=SimpleNamespace(json='{"name": "placement"}'))
    listener.onQueryProgress(progress)
    assert reported == ["placement"]


def test_a_query_is_idle_only_once_it_has_nothing_to_do() -> None:
    idle: list[str] = []
    listener = Listener(lambda _: None, idle=idle.append)
    event: Any = SimpleNamespace(id="1", name="placement")
    listener.onQueryStarted(event)
    before = list(idle)
    listener.onQueryIdle(event)
    assert (before, idle) == ([], ["placement"])
