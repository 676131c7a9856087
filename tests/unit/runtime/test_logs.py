"""A log entry is one line: the event, then its fields."""

import logging
import subprocess
import sys

import pytest
from py4j.protocol import Py4JNetworkError

from trueup.streams.runtime.logs import EVERY_S, LONGEST, Connections, Gone, Line, Seldom


def line(message: str, **extra: object) -> str:
    values = {"name": "streams.x", "msg": message, "levelname": "INFO", "created": 0.0, "msecs": 7.0, **extra}
    return Line().format(logging.makeLogRecord(values))


def test_a_line() -> None:
    assert line("listening", port=80) == "1970-01-01T00:00:00.007Z INFO    streams.x: listening port=80"


@pytest.mark.parametrize(
    ("value", "text"), [("a b", '"a b"'), ("", '""'), ("a\nb", '"a\\nb"'), ('a="b"', '"a=\\"b\\""'), (None, "None")]
)
def test_a_value_stays_on_its_line(value: object, text: str) -> None:
    assert line("x", found=value).endswith(f"found={text}")


def test_the_same_message_passes_once_a_minute() -> None:
    seldom = Seldom()
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
    assert Gone().filter(record) is passes


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


@pytest.mark.parametrize(("error", "kept"), [(ConnectionResetError(), False), (KeyError("a defect"), True)])
def test_a_broken_connection_of_kafka_python_is_logged_without_a_stack_trace(error: Exception, kept: bool) -> None:
    record = logging.makeLogRecord({"name": "kafka.net.transport", "exc_info": (type(error), error, None)})
    assert (Connections().filter(record), record.exc_info is not None) == (True, kept)


def test_messages_of_kafka_python_pass_once_a_minute_and_others_always() -> None:
    seldom = Connections()
    records = [logging.makeLogRecord({"name": name, "msg": "no broker", "created": 0.0})
               for name in ("kafka.net", "kafka.net", "trueup.x", "trueup.x")]  # fmt: skip
    assert [seldom.filter(record) for record in records] == [True, False, True, True]
