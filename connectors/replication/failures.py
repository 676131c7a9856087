"""What becomes of a record that the target refuses: its partition stops, a dead-letter topic takes it, or a hook does.

RIP-45 gives a source connector two calls, `dismissFailedMsgs` and `customerFailedMsgs`, each with a list of records and
an answer whose meaning it leaves open. Here the answer is defined: **true: handled**, the copy goes on behind the
record (``stop`` never says so, a dead-letter topic does once it has acknowledged the record, a hook says it itself);
**false: not handled**, the partition stops before the record and tells why. Nothing is ever left out silently.
A hook may be called again for the same record after a crash, and so may a dead letter be written twice.
"""

from collections.abc import Sequence
from typing import Protocol

from trueup.connectors.contract import Failure, Hook, Lease, LogId
from trueup.connectors.replication.headers import Headers
from trueup.connectors.replication.transforms import Attempt, Record, entry_point
from trueup.state.common.errors import BadSettings

WHY = "trueup-failed-"
"""Begins the headers of a dead letter: -reason, -link, -topic, -partition, -offset, -records; all text."""


class Policy(Protocol):
    """What a lease says about refused records."""

    def handle(self, failure: Failure, record: Record) -> str:
        """Deal with one; the empty text: handled, else why its partition has to stop."""

    def close(self) -> None:
        """Let go of connections."""


class Letters(Protocol):
    """What writes dead letters at the target."""

    def write(self, topic: str, record: Record, headers: Headers) -> str:
        """Write a record with these headers and wait. Empty: acknowledged; else why not."""

    def close(self) -> None:
        """Let go of connections."""


def policy_of(lease: Lease, letters: Letters) -> Policy:
    """The policy by its name; ``letters`` is closed with it. Raises `BadSettings`."""
    if lease.failures == "stop":
        return _Stop()
    if lease.failures == "dead-letter" and lease.dead_letters:
        return _DeadLetters(lease, letters)
    if lease.failures == "hook" and lease.hook:
        return _Hooked(entry_point(lease.hook, f"links.{lease.link}.hook"))
    given = f"{lease.failures}, with dead_letter_topic {lease.dead_letters!r} and hook {lease.hook!r}"
    wanted = "stop, dead-letter with its topic, or hook with its function"
    raise BadSettings([f"links.{lease.link}.failures: {given}; give {wanted}"])


def failure_of(lease: Lease, source: LogId, record: Record, reason: str, records: int = 1) -> Failure:
    """A failure as hooks see it. With several ``records`` the record is their batch, from its first offset on."""
    target = next(a.target for a in lease.assignments if a.source == source)
    single = records == 1
    return Failure(
        lease.link, source, target, record.offset, records,
        record.key if single else None, record.value if single else None, reason,
    )  # fmt: skip


class _Stop:
    def handle(self, failure: Failure, _record: Record) -> str:
        return f"{place(failure)} was refused: {failure.reason}; make the target take it, or set failures: otherwise"

    def close(self) -> None:
        """Nothing is held."""


class _Hooked:
    def __init__(self, hook: Hook) -> None:
        self._hook = hook

    def handle(self, failure: Failure, _record: Record) -> str:
        """Ask the hook. One that raises, or that answers something else than one truth value, handled nothing."""
        answer: Sequence[bool] = ()
        with Attempt() as attempt:
            answer = list(self._hook([failure]))
        if attempt.said:
            return f"{place(failure)} was refused ({failure.reason}) and the hook failed: {attempt.said}; correct it"
        if len(answer) != 1 or not isinstance(answer[0], bool):
            return f"{place(failure)} was refused ({failure.reason}); expected one bool of the hook; found {answer!r}"
        if answer[0]:
            return ""
        return f"{place(failure)} was refused ({failure.reason}) and the hook did not handle it; see what it wants"

    def close(self) -> None:
        """Nothing is held."""


class _DeadLetters:
    def __init__(self, lease: Lease, letters: Letters) -> None:
        self._lease, self._letters = lease, letters

    def handle(self, failure: Failure, record: Record) -> str:
        """Write the record as it is to the topic, with headers that say why and where it is from."""
        topic = self._lease.dead_letters.replace("{topic}", failure.source.topic)
        told = {
            "reason": failure.reason, "link": failure.link, "topic": failure.source.topic,
            "partition": failure.source.number, "offset": failure.offset, "records": failure.records,
        }  # fmt: skip
        headers: Headers = [*record.headers, *((WHY + name, str(value).encode()) for name, value in told.items())]
        problem = self._letters.write(topic, record, headers)
        if problem:
            return f"{place(failure)} was refused ({failure.reason}) and so by {topic}: {problem}; create or widen it"
        return ""

    def close(self) -> None:
        self._letters.close()


def place(failure: Failure) -> str:
    """Where a refused record is, in words."""
    what = "the record" if failure.records == 1 else f"a batch of {failure.records} records"
    return f"{what} at offset {failure.offset} of {failure.source}"
