"""Spark's driver: the one session of the application and the JVM under it, begun, watched, made anew, ended.

A JVM is killed, runs out of memory, or ends itself where its own heartbeats went unanswered, as when the machine slept.
pyspark keeps session, context and gateway in class attributes and never replaces what is there, so they are taken out
by hand.
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

log = logging.getLogger(__name__)
EXIT_S, KILL_S = 1.0, 5.0
CODES = {
    52: "it ran out of memory",
    56: "no heartbeat of its own was answered, as after a sleep of the machine",
}
"""What Spark means by some of its exit codes (SparkExitCode, ExecutorExitCode)."""


class Driver:
    """``make`` starts a session. Used by one thread, but for ``session``."""

    def __init__(self, make: Callable[[], SparkSession], listener: StreamingQueryListener) -> None:
        self._make, self._listener = make, listener
        self._session: SparkSession | None = None

    @property
    def session(self) -> SparkSession:
        """The session that runs, or ran last."""
        assert self._session is not None, "begin comes first"
        return self._session

    def begin(self) -> None:
        """Start a session; one before it is cleared away. Takes seconds. Raises `Stop` where no JVM can be had."""
        self._clear()
        self._session = self._make()
        vars(self._listener).pop("_jlistenerobj", None)  # it belongs to the JVM before
        self._session.streams.addListener(self._listener)
        # It prints a trace on standard error for every connection of a JVM that ended.
        server = self._session.sparkContext._accumulatorServer
        server.handle_error = lambda *_: None  # type: ignore[method-assign]

    def ended(self) -> str:
        """Why nothing can be done with the session any more; empty if something can."""
        process = _process()
        if process is not None and (code := process.poll()) is not None:
            return f"its JVM ended with {_code(code)}"
        try:
            context = self.session.sparkContext._jsc
            return "its context was stopped" if context is None or context.sc().isStopped() else ""
        except (Py4JError, OSError) as error:
            # The connections of a process that dies close before its exit code is there.
            with suppress(subprocess.TimeoutExpired):
                if process is not None:
                    return f"its JVM ended with {_code(process.wait(EXIT_S))}"
            return f"its JVM does not answer: {type(error).__name__}"

    def close(self, until: float) -> None:
        """End the JVM, which stops its context first; one that runs until then, by `time.monotonic`, is killed."""
        process = _process()
        if process is not None:
            process.terminate()
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                log.warning("Spark's JVM did not end in time: it is killed")
        self._clear()

    def kill(self) -> None:
        """End the JVM at once; nothing can be done with the session any more."""
        process = _process()
        if process is not None:
            process.kill()

    def _clear(self) -> None:
        """Forget the session, and end its JVM if it still runs."""
        session, self._session = self._session, None
        process, gateway = _process(), SparkContext._gateway
        if process is not None:
            with suppress(OSError):
                process.kill()
            with suppress(subprocess.TimeoutExpired):
                process.wait(KILL_S)
            if process.stdin is not None:
                process.stdin.close()
        if session is not None:
            context = session.sparkContext
            context._jsc = None
            context.stop()
        SparkSession._instantiatedSession = SparkSession._activeSession = None
        SQLContext._instantiatedContext = None
        SparkContext._gateway = SparkContext._jvm = None
        # pyspark's own reads the session that is gone, so a Java exception of any JVM would be an AssertionError.
        java_gateway.get_return_value = get_return_value
        if gateway is not None:
            with suppress(Py4JError, OSError):
                gateway.close(keep_callback_server=True)
                gateway.shutdown_callback_server()


def _process() -> "subprocess.Popen[bytes] | None":
    found: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    return found


def _code(code: int) -> str:
    if code < 0:
        return f"signal {signal.Signals(-code).name}"
    return f"exit code {code}" + (f": {CODES[code]}" if code in CODES else "")
