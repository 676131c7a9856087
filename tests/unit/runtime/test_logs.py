"""A log entry is one line: the event, then its fields."""

import json
import logging
import subprocess
import sys

import pytest
from py4j.protocol import Py4JNetworkError

from trueup.streams.journal.history import History
from trueup.streams.journal.history_row import ACTIONS, HistoryRow
from trueup.streams.runtime.logs import (
    EVERY_S,
    LONGEST,
    Connections,
    EndedJvmFilter,
    JsonLine,
    LogFormatter,
    OncePerMinute,
)


def line(message: str, **extra: object) -> str:
    values = {"name": "streams.x", "msg": message, "levelname": "INFO", "created": 0.0, "msecs": 7.0, **extra}
    return LogFormatter().format(logging.makeLogRecord(values))


def test_a_line() -> None:
    assert line("listening", port=80) == "1970-01-01T00:00:00.007Z INFO    streams.x: listening port=80"


@pytest.mark.parametrize(
    ("value", "text"), [("a b", '"a b"'), ("", '""'), ("a\nb", '"a\\nb"'), ('a="b"', '"a=\\"b\\""'), (None, "None")]
)
def test_a_value_stays_on_its_line(value: object, text: str) -> None:
    assert line("x", found=value).endswith(f"found={text}")


def test_the_same_message_passes_once_a_minute() -> None:
    seldom = OncePerMinute()
    records = [logging.makeLogRecord({"msg": "no broker", "created": at}) for at in (0.0, 1.0, EVERY_S, EVERY_S + 1)]
    assert [seldom.filter(record) for record in records] == [True, False, True, False]


def after(first: Exception, error: Exception) -> Exception:
    """An error raised while another one was handled."""
    error.__context__ = first
    return error


@pytest.mark.parametrize(
    ("name", "error", "passes"),
    [
        ("py4j.clientserver", after(Py4JNetworkError("gone"), AttributeError("no context")), False),
        ("py4j.clientserver", after(KeyError("ours"), AttributeError("ours")), True),
        ("py4j.clientserver", ConnectionRefusedError(), False),
        ("py4j.clientserver", Py4JNetworkError("gone"), False),
        ("py4j.clientserver", KeyError("ours"), True),
        ("streams.x", ConnectionRefusedError(), True),
    ],
)
def test_log_lines_of_py4j_about_an_ended_jvm_are_dropped(name: str, error: Exception, passes: bool) -> None:
    record = logging.makeLogRecord({"name": name, "exc_info": (type(error), error, None)})
    assert EndedJvmFilter().filter(record) is passes


def test_a_line_has_an_end() -> None:
    long = "x" * 200_000
    assert len(line(long, found=long)) < 2 * LONGEST + 20


SAYS = """
import logging
from trueup.streams.runtime import logs
logs.start("info")
for module in (logs, logging):
    logging.getLogger(module.__name__).info("from %s", module.__name__)
"""


def test_our_modules_log_from_the_level_chosen_and_others_from_warnings() -> None:
    done = subprocess.run([sys.executable, "-c", SAYS], capture_output=True, text=True, timeout=60, check=True)
    assert [each.split(": ")[1] for each in done.stderr.splitlines()] == ["from trueup.streams.runtime.logs"]


WAITS = """
from trueup.streams.runtime import logs
from waitress.task import ThreadedTaskDispatcher
logs.start("info")
ThreadedTaskDispatcher().add_task(None)
"""


def test_a_request_that_waits_for_a_thread_is_no_event_of_the_log() -> None:
    done = subprocess.run([sys.executable, "-c", WAITS], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""


@pytest.mark.parametrize(("error", "kept"), [(ConnectionResetError(), False), (KeyError("a defect"), True)])
def test_a_broken_connection_of_kafka_python_is_logged_without_a_stack_trace(error: Exception, kept: bool) -> None:
    record = logging.makeLogRecord({"name": "kafka.net.transport", "exc_info": (type(error), error, None)})
    assert (Connections().filter(record), record.exc_info is not None) == (True, kept)


def test_messages_of_kafka_python_pass_once_a_minute_and_others_always() -> None:
    seldom = Connections()
    records = [
        logging.makeLogRecord({"name": name, "msg": "no broker", "created": 0.0})
        for name in ("kafka.net", "kafka.net", "trueup.x", "trueup.x")
    ]
    assert [seldom.filter(record) for record in records] == [True, False, True, True]


def json_line(**values: object) -> dict[str, object]:
    known = {"name": "trueup.x", "msg": "listening", "levelname": "INFO", "created": 0.0, "msecs": 7.0, **values}
    found: dict[str, object] = json.loads(JsonLine().format(logging.makeLogRecord(known)))
    return found


def test_a_json_line_has_the_event_and_its_fields() -> None:
    assert json_line(port=80, place="a\nb") == {
        "time": "1970-01-01T00:00:00.007Z",
        "level": "info",
        "logger": "trueup.x",
        "event": "listening",
        "port": 80,
        "place": "a\nb",
    }


def test_a_field_does_not_replace_one_of_the_line() -> None:
    assert (json_line(event="theirs")["event"], json_line(event="theirs")["event_"]) == ("listening", "theirs")


def test_a_json_line_has_the_stack_of_an_error() -> None:
    error = KeyError("x")
    assert "KeyError: 'x'" in str(json_line(exc_info=(KeyError, error, None))["stack"])


def test_every_action_is_an_event(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, ACTIONS):
        History().add(HistoryRow(5, "r1", "repair", "marked", ledger=7, rule="placement.too-few-racks"))
    line = json.loads(JsonLine().format(caplog.records[-1]))
    assert {name: line[name] for name in ("event", "kind", "outcome", "ledger", "who")} == {
        "event": "action",
        "kind": "repair",
        "outcome": "marked",
        "ledger": 7,
        "who": "trueup",
    }


def test_an_event_of_a_socket_on_which_kafka_python_does_not_wait_is_no_event_of_the_log() -> None:
    def passes(text: str) -> bool:
        return Connections().filter(logging.LogRecord("kafka.net.selector", 30, "selector.py", 1, text, (), None))

    assert not passes("Selector got READ event without reader...")
    assert not passes("Selector got WRITE event without writer...")
    assert passes("Wakeup socket returned empty. Rebuilding.")
