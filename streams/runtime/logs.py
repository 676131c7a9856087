"""The application's log: one line per event on stderr, with its fields as key=value after the message."""

import json
import logging
import time
from collections.abc import Iterator

import trueup
from trueup.streams.journal.history_row import ACTIONS
from trueup.streams.runtime.format import bounded, cut
from trueup.streams.runtime.passes import PASS

LEVELS, FORMS = ("debug", "info", "warning", "error"), ("text", "json")
SAME, EVERY_S, DOWNLOAD_S = 60, 60.0, 2.0
log = logging.getLogger(__name__)

LONGEST = 4_096
"""Maximum characters of a message, and of each field."""
_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class LogFormatter(logging.Formatter):
    """Formats time in UTC, level, module, message, and the extra fields of the record."""

    converter = time.gmtime  # type: ignore[assignment]
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Format the message as one line."""
        words = [
            cut(super().formatMessage(record).replace("\n", " "), LONGEST),
            *(f"{k}={_word(v)}" for k, v in _fields(record).items()),
        ]
        return " ".join(words)


class JsonLine(LogFormatter):
    """Formats a JSON object: ``time``, ``level``, ``logger``, ``event`` (the same text for the same event), the fields
    of the record, and ``stack`` if there is one. A field with one of these names is written with ``_`` after it."""

    def format(self, record: logging.LogRecord) -> str:
        """Format the record as one line."""
        own = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": cut(record.getMessage(), LONGEST),
        }
        if isinstance(record.exc_info, tuple) and record.exc_info[0] is not None:
            own["stack"] = self.formatException(record.exc_info)
        fields = {f"{k}_" if k in own else k: bounded(v, LONGEST) for k, v in _fields(record).items()}
        return json.dumps(own | fields, default=str)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    """The fields of the record, and the pass of the thread that logs it."""
    fields = {name: value for name, value in vars(record).items() if name not in _PLAIN}
    return fields | {"pass": PASS.get()} if PASS.get() else fields


class OncePerMinute(logging.Filter):
    """Passes messages with the same beginning once a minute: a client that cannot reach its broker logs several times a
    second."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log the record."""
        key = record.getMessage()[:SAME]
        seldom = record.created - self._last.get(key, -EVERY_S) >= EVERY_S
        if seldom:
            self._last = {k: at for k, at in self._last.items() if record.created - at < EVERY_S}
            self._last[key] = record.created
        return seldom


class Connections(logging.Filter):
    """Passes kafka-python's messages as `OncePerMinute` does, without stack traces: it logs each failure of a
    connection at several levels."""

    def __init__(self) -> None:
        super().__init__()
        self._seldom = OncePerMinute()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log the record."""
        if not record.name.startswith("kafka."):
            return True
        if record.getMessage().startswith(_SPURIOUS):
            return False
        if isinstance(record.exc_info, tuple) and isinstance(record.exc_info[1], OSError):
            record.exc_info = None
        return self._seldom.filter(record)


_SPURIOUS = "Selector got "
"""kafka-python's message about an event of a socket on which it has ceased to wait, after which nothing has to be done
(kafka/net/selector.py)."""


class EndedJvmFilter(logging.Filter):
    """Drops py4j's messages about calls that fail because the JVM ended; the supervisor reports that."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log the record."""
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        theirs = record.name.startswith("py4j") or "/py4j/" in record.pathname
        return not (theirs and any(map(_of_the_connection, _chain(error))))


def _of_the_connection(error: BaseException) -> bool:
    return isinstance(error, OSError | EOFError) or type(error).__module__.startswith("py4j.")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and its causes: the clean-up of pyspark also fails if its context is gone."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


class Downloads:
    """Logs the progress of a download of jars every `DOWNLOAD_S` seconds. Called with the bytes so far and in total."""

    def __init__(self) -> None:
        self._next_s = time.monotonic() + DOWNLOAD_S

    def __call__(self, done: int, total: int) -> None:
        """Log the progress if it is due."""
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + DOWNLOAD_S
            log.info("downloading jars", extra={"megabytes": done // 1_000_000, "of": total // 1_000_000})


def _word(value: object) -> str:
    text = cut(str(value), LONGEST)
    return text if text and not set(text) & set(' "=\n') else json.dumps(text)


def start(level: str = "info", form: str = FORMS[0]) -> None:
    """Log to stderr: Trueup from this level, libraries from WARNING, or only errors if the level is error. With the
    ``form`` json, every action is an event."""
    logging.raiseExceptions = False  # a log that cannot be written, as on a full disk, prints no stack traces
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLine() if form == "json" else LogFormatter())
    handler.addFilter(EndedJvmFilter())
    handler.addFilter(Connections())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(max(logging.WARNING, logging.getLevelNamesMapping()[level.upper()]))
    logging.getLogger(trueup.__name__).setLevel(level.upper())
    if form != "json":
        logging.getLogger(ACTIONS).setLevel(logging.WARNING)
    # waitress warns of every request that waits for a thread; tabs that open or close make many.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    for name in ("librdkafka", "kazoo.client"):
        logging.getLogger(name).addFilter(OncePerMinute())
