"""Handling of records that the target refuses: the partition stops, or a dead-letter topic or a hook handles them.

RIP-45 gives a source connector two calls, `dismissFailedMsgs` and `customerFailedMsgs`, each with a list of records and
an undefined result. Here the result is defined: **true: handled**, the copy continues after the record (``stop`` never
returns this, a dead-letter topic does after it acknowledged the record, a hook decides itself); **false: not handled**,
the partition stops before the record and reports the reason. No record is ever omitted silently.
A hook may be called again for the same record after a crash, and a dead letter may be written twice.
"""

from collections.abc import Sequence
from typing import Protocol

from trueup.connectors.contract import Failure, Hook, Lease, LogId
from trueup.connectors.replication.headers import Headers
from trueup.connectors.replication.transforms import Attempt, Record, entry_point
from trueup.state.common.errors import BadSettings

WHY = "trueup-failed-"
"""Prefix of the headers of a dead letter: -reason, -link, -topic, -partition, -offset, -timestamp, -records; all text.
-timestamp is that of the record, in ms since 1970; -1: none."""


class FailurePolicy(Protocol):
    """A lease's policy for refused records."""

    def handle(self, failure: Failure, record: Record, now_ms: int) -> str:
        """Handle one record. Returns empty text if it was handled, otherwise why its partition must stop. ``now_ms``:
        the present in ms since 1970. Raises `Retry`."""

    def close(self) -> None:
        """Close the connections."""


class DeadLetterWriter(Protocol):
    """The writer of dead letters at the target."""

    def write(self, topic: str, record: Record, headers: Headers) -> str:
        """Write a record with these headers to the log that its key selects, and wait. Returns the error, empty if it
        was acknowledged. Raises `Retry` if the response is lost."""

    def close(self) -> None:
        """Close the connections."""


def policy_of(lease: Lease, letters: DeadLetterWriter) -> FailurePolicy:
    """The policy of a lease; ``letters`` is closed with it. Raises `BadSettings`."""
    if lease.failures == "stop":
        return _Stop()
    if lease.failures == "dead-letter" and lease.dead_letters:
        return _DeadLetters(lease, letters)
    if lease.failures == "hook" and lease.hook:
        return _Hooked(entry_point(lease.hook, f"links.{lease.link}.hook"))
    given = f"{lease.failures}, with dead_letter_topic {lease.dead_letters!r} and hook {lease.hook!r}"
    choices = "stop, dead-letter with its topic, or hook with its function"
    raise BadSettings([f"links.{lease.link}.failures: {given}; set {choices}"])


def failure_of(lease: Lease, source: LogId, record: Record, reason: str, records: int = 1) -> Failure:
    """A failure in the form for hooks. With several ``records`` the record is their batch, from its first offset on."""
    target = next(a.target for a in lease.assignments if a.source == source)
    single = records == 1
    return Failure(
        lease.link,
        source,
        target,
        record.offset,
        records,
        record.key if single else None,
        record.value if single else None,
        reason,
    )


class _Stop:
    def handle(self, failure: Failure, _record: Record, _now_ms: int) -> str:
        return f"{place(failure)} was refused: {failure.reason}; change the target to accept it, or change failures"

    def close(self) -> None:
        """No operation: no connection is held."""


class _Hooked:
    def __init__(self, hook: Hook) -> None:
        self._hook = hook

    def handle(self, failure: Failure, _record: Record, _now_ms: int) -> str:
        """Call the hook. An exception, or a result other than one bool, counts as not handled."""
        answer: Sequence[bool] = ()
        with Attempt() as attempt:
            answer = list(self._hook([failure]))
        if attempt.error:
            return f"{place(failure)} was refused ({failure.reason}) and the hook failed: {attempt.error}; correct it"
        if len(answer) != 1 or not isinstance(answer[0], bool):
            return f"{place(failure)} was refused ({failure.reason}); expected one bool from the hook; found {answer!r}"
        if answer[0]:
            return ""
        return f"{place(failure)} was refused ({failure.reason}) and the hook did not handle it; check the hook"

    def close(self) -> None:
        """No operation: no connection is held."""


class _DeadLetters:
    def __init__(self, lease: Lease, letters: DeadLetterWriter) -> None:
        self._lease, self._letters = lease, letters

    def handle(self, failure: Failure, record: Record, now_ms: int) -> str:
        """Write the record to the topic, with headers for the reason and the origin. Its timestamp is the present: by
        its own the broker would delete an old record soon after it counts as handled, or refuse it."""
        topic = self._lease.dead_letters.replace("{topic}", failure.source.topic)
        details = {
            "reason": failure.reason,
            "link": failure.link,
            "topic": failure.source.topic,
            "partition": failure.source.number,
            "offset": failure.offset,
            "timestamp": record.timestamp,
            "records": failure.records,
        }
        headers: Headers = [*record.headers, *((WHY + name, str(value).encode()) for name, value in details.items())]
        problem = self._letters.write(topic, record._replace(timestamp=now_ms), headers)
        if problem:
            return f"{place(failure)} was refused ({failure.reason}) and also by {topic}: {problem}; create or widen it"
        return ""

    def close(self) -> None:
        self._letters.close()


def place(failure: Failure) -> str:
    """The location of a refused record, as text."""
    what = "the record" if failure.records == 1 else f"a batch of {failure.records} records"
    return f"{what} at offset {failure.offset} of {failure.source}"
