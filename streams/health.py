"""Health in one line, with reasons. A cluster that cannot be observed is not healthy."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trueup.state.common.counts import many
from trueup.streams.catalog import STREAMS
from trueup.streams.rows import Row
from trueup.streams.runtime.format import ago
from trueup.streams.runtime.signs import Signs

LEVELS = ("healthy", "starting", "attention", "held", "blind")
"""From good to bad; only `healthy` is good."""
BLINDING = ("journal", "spark")
"""Sources that all streams need."""


class Health(NamedTuple):
    """The health of an application."""

    level: str
    """One of `LEVELS`."""
    line: str
    reasons: tuple[str, ...]
    """The reasons why the application is not healthy; empty if it is healthy. Of a standby also the problems that do
    not prevent a takeover."""
    lines: tuple[tuple[str, str], ...] = ()
    """The `Signs.lines` of all streams; empty for a standby."""


def health(status: Row) -> Health:
    """Health from an application's status (`streams.web.engine.Engine.status`)."""
    if (status.get("ha") or {}).get("role") == "standby":
        return _standby(status)
    signs = [stream.signs(status) for stream in STREAMS]
    blind, held = list(_blind(status, signs)), [reason for part in signs for reason in part.held]
    reasons = tuple(dict.fromkeys([*blind, *held, *_attention(status, signs)]))
    lines = tuple(line for part in signs for line in part.lines)
    if blind and status["starting"]:
        return Health("starting", f"Starting{_judged(status)}", reasons, lines)
    if blind:
        return Health("blind", "Blind: the cluster cannot be seen as it is now", reasons, lines)
    if held:
        return Health("held", next(part.held_line for part in signs if part.held), reasons, lines)
    if reasons:
        return Health("attention", "Needs attention", reasons, lines)
    return Health("healthy", f"Healthy: {' and '.join(part.well for part in signs if part.well)}", (), lines)


def _judged(status: Row) -> str:
    if not status["watches_ledgers"] or not status["ledgers"]:
        return ""
    return f": {status['ledgers'] - status['not_judged']:,} of {many(status['ledgers'], 'ledger')} judged"


def _standby(status: Row) -> Health:
    """A standby is healthy if it could take over: a refused setting, for example, is the same for each instance."""
    ha, leader = status["ha"], status["ha"]["leader"]
    down = [_silent(source) for source in status["sources"] if source["state"] != "up"]
    problems = [text for text in status["problems"] if not text.startswith("this instance is a standby")]
    reasons = (*down, *problems, *(() if leader else ("no leader is known at present",)))
    able = leader and not down and not ha["unable"]
    line = f"Standby of epoch {ha['epoch']}; the leader is at {leader}" if leader else "Standby without a leader"
    return Health("healthy" if able else "attention", line, reasons)


def _blind(status: Row, signs: Sequence[Signs]) -> Iterator[str]:
    if not status["ready"]:
        yield from status["problems"] or ["not ready: the view is not complete yet"]
    yield from (_silent(s) for s in status["sources"] if s["state"] == "down" and s["name"] in _blinding(signs))
    yield from (reason for part in signs for reason in part.blind)


def _blinding(signs: Sequence[Signs]) -> set[str]:
    return {*BLINDING, *(name for part in signs for name in part.blinding)}


def _attention(status: Row, signs: Sequence[Signs]) -> Iterator[str]:
    named = {name for part in signs for name in part.named}
    yield from (text for text in status["problems"] if not text.startswith(tuple(f"{name}: " for name in named)))
    yield from (reason for part in signs for reason in part.attention)
    for stream in status["streams"]:
        if stream["state"] == "failed" and not any(stream["error"] in text for text in status["problems"]):
            yield f"stream {stream['name']} failed: {stream['error']}"
    blinding = _blinding(signs)
    for source in status["sources"]:
        silent = source["state"] == "slow" or (source["state"] == "down" and source["name"] not in blinding)
        if silent and source["name"] not in named:
            yield _silent(source)


def _silent(source: Row) -> str:
    detail = f": {source['detail']}" if source["detail"] else ""
    heard = f", last heard {ago(source['age_ms'])}" if source["age_ms"] is not None else ""
    return f"{source['name']} is {source['state']}{heard}{detail}"
