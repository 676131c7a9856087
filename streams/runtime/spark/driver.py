"""Spark's driver: the session of the application and its JVM, which is started, monitored, replaced and ended.

A JVM may be killed, run out of memory, or end itself after heartbeats without a response, for example when the machine
was suspended. pyspark keeps session, context and gateway in class attributes and does not replace them; this module
removes them.
"""

import logging
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress

from py4j import java_gateway
from py4j.protocol import Py4JError, get_return_value
from pyspark import SparkContext
from pyspark.sql import SparkSession, SQLContext
from pyspark.sql.streaming import StreamingQueryListener

from trueup.state.common.errors import Retry

log = logging.getLogger(__name__)
EXIT_S, KILL_S = 1.0, 5.0
_EXHAUSTED = "it ran out of memory; increase spark.memory, or reduce spark.max_records"
CODES = {3: _EXHAUSTED, 52: _EXHAUSTED, 56: "its heartbeats received no response, as after the machine was suspended"}
"""Meanings of some exit codes of Java (ExitOnOutOfMemoryError) and of Spark (SparkExitCode, ExecutorExitCode)."""


class Driver:
    """The driver. ``make`` starts a session. Used by one thread, except for ``session``."""

    def __init__(self, make: Callable[[], SparkSession], listener: StreamingQueryListener) -> None:
        self._make, self._listener = make, listener
        self._session: SparkSession | None = None

    @property
    def session(self) -> SparkSession:
        """The current session. Raises `Retry` while another one is started."""
        if (session := self._session) is None:
            raise Retry("a Spark session", "none at present", "wait until it has started")
        return session

    def begin(self) -> None:
        """Start a session and discard the previous one. Takes seconds. Raises `Stop` if no JVM can be started."""
        self._clear()
        self._session = self._make()
        vars(self._listener).pop("_jlistenerobj", None)  # it belongs to the previous JVM
        self._session.streams.addListener(self._listener)
        # It prints a stack trace to standard error for every connection of a JVM that ended.
        server = self._session.sparkContext._accumulatorServer
        server.handle_error = lambda *_: None  # type: ignore[method-assign]

    def ended(self) -> str:
        """Why the session is unusable; empty if it is usable."""
        process = _process()
        if process is not None and (code := process.poll()) is not None:
            return f"its JVM ended with {_code(code)}"
        try:
            context = self.session.sparkContext._jsc
            return "its context was stopped" if context is None or context.sc().isStopped() else ""
        except (Py4JError, OSError) as error:
            # The connections of a process close before its exit code is available.
            with suppress(subprocess.TimeoutExpired):
                if process is not None:
                    return f"its JVM ended with {_code(process.wait(EXIT_S))}"
            return f"its JVM does not respond: {type(error).__name__}"

    def close(self, until: float) -> None:
        """End the JVM, which stops its context first. If it still runs at ``until`` (`time.monotonic`), it is
        killed."""
        process = _process()
        if process is not None:
            process.terminate()
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                log.warning("JVM of Spark killed")
        self._clear()

    def kill(self) -> None:
        """Kill the JVM. The session is unusable then."""
        process = _process()
        if process is not None:
            process.kill()

    def _clear(self) -> None:
        """Discard the session and end its JVM if it still runs."""
        session, self._session = self._session, None
        process, gateway = _process(), SparkContext._gateway
        if process is not None:
            with suppress(OSError):
                process.kill()
            with suppress(subprocess.TimeoutExpired):
                process.wait(KILL_S)
            if process.stdin is not None:
                process.stdin.close()
        # pyspark also keeps a context whose session could not be made.
        context = SparkContext._active_spark_context if session is None else session.sparkContext
        if context is not None:
            context._jsc = None
            context.stop()
        SparkSession._instantiatedSession = SparkSession._activeSession = None
        SQLContext._instantiatedContext = None
        SparkContext._gateway = SparkContext._jvm = None
        # pyspark's replacement reads the discarded session and turns every Java exception into an AssertionError.
        java_gateway.get_return_value = get_return_value
        if gateway is not None:
            with suppress(Py4JError, OSError):
                gateway.close(keep_callback_server=True)
                gateway.shutdown_callback_server()


def _process() -> "subprocess.Popen[bytes] | None":
    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    return process


def _code(code: int) -> str:
    if code < 0:
        return f"signal {signal.Signals(-code).name}"
    return f"exit code {code}" + (f": {CODES[code]}" if code in CODES else "")
