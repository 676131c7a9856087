"""Valid and invalid records of the config topic, applied by `Live`."""

import json
import logging
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, cast

import pytest

from tests.configuration import parse
from tests.fuzz import COUNT, SEED, mutated
from trueup.state.common.errors import BadBytes, BadSettings
from trueup.state.common.options import BYTES, YEAR_S
from trueup.state.common.patterns import matches
from trueup.state.replication.settings import LinkSettings
from trueup.state.settings.settings import Settings, live_keys, possible_keys, value_of
from trueup.streams.catalog import sections
from trueup.streams.config.live import Live
from trueup.streams.journal.codec import checked, encode
from trueup.streams.journal.journal import Journal, JournalRecord

BASE = parse(
    {
        "cluster": {"zookeeper": "zk:2181"},
        "kafka": {"east": {"bootstrap": "e:1", "bit": 0}, "west": {"bootstrap": "w:1", "bit": 1}},
        "links": {"l": {"source": "east", "target": "west", "topics": ["orders"]}},
        "logdirs": {"east": {}},
    }
)
LIVE = live_keys(BASE)


class Topic:
    """The config topic: record bodies by key, oldest first."""

    def __init__(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        self.records = [*records]

    def put(self, records: Iterable[tuple[str, bytes, Any]]) -> None:
        self.records += [(key, None if value is None else encode(what, value)) for what, key, value in records]

    def read(self, what: str) -> Iterator[JournalRecord]:
        for offset, (key, body) in enumerate(self.records):
            place = f"offset {offset}"
            with suppress(BadBytes):
                yield JournalRecord(key, None if body is None else checked(what, key, body, place), place, offset)


def record(name: str, value: str) -> tuple[bytes, bytes]:
    return name.encode(), encode("config", {"name": name, "value": value, "at_ms": 0})


def loaded(records: Sequence[tuple[bytes, bytes]]) -> Live:
    live = Live(BASE, cast("Journal", Topic(records)), lambda: 0)
    live.load()
    return live


def why(name: str, value: str) -> str:
    """The reason why a record is rejected. The settings must be unchanged."""
    live = loaded([record(name, value)])
    assert live.now == BASE
    ((_, problem),) = live.refused.values()
    return problem


@pytest.mark.parametrize("name", ["links.gone.mode", "cluster.name"])
def test_a_record_of_a_key_that_is_not_live_is_removed_by_its_name(name: str) -> None:
    topic = Topic([record(name, '"enforce"'), record("placement.mode", '"approve"')])
    live = Live(BASE, cast("Journal", topic), lambda: 0)
    live.load()
    assert (list(live.refused), live.set(name, None), live.refused) == ([name], None, {})
    later = Live(BASE, cast("Journal", topic), lambda: 0)
    later.load()
    assert (later.now, later.refused) == (live.now, {})


def test_a_key_that_is_not_live_and_has_no_record_is_refused() -> None:
    with pytest.raises(BadSettings, match=r"links\.gone\.mode: expected a live key"):
        loaded([]).set("links.gone.mode", None)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("placement.grace_s", "1" + "0" * 400, "a number, at least 0, at most 31622400; found a number of 1329 bits"),
        ("placement.max_marks", "1" + "0" * 400, "at least 0, at most 2147483647; found a number of 1329 bits"),
        ("placement.max_marks", "1" + "0" * 5_000, "expected JSON; found something else"),
        ("placement.grace_s", "1e999", "at most 31622400; found inf"),
        ("placement.grace_s", "NaN", "at most 31622400; found nan"),
        ("placement.grace_s", "[" * 100_000, "expected JSON; found something else"),
        ("placement.grace_s", "[" * 900 + "]" * 900, "found [[[[...]]]]"),
        ("links.l.topics", '["/a{99999999999}/"]', "{ must be followed by a repetition count"),
        ("links.l.topics", '["/(?=a)b/"]', "(RE2 has no lookaround and no backreferences)"),
        ("links.l.groups", '["\\ud800"]', "expected UTF-8 text of at most 100,000 characters, without NUL"),
        ("links.l.start", '"group:\\u0000"', "expected UTF-8 text of at most 100,000 characters, without NUL"),
        ("links.l.groups", json.dumps(["g"] * 10_001), "expected a list of texts"),
        ("placement.hold", '"hunter2"', "expected a live key; found this one; did you mean"),
    ],
)
def test_a_record_that_cannot_be_applied_is_refused_with_its_reason(name: str, value: str, problem: str) -> None:
    result = why(name, value)
    assert problem in result
    assert len(result) < 2_500
    assert "hunter2" not in result


def test_every_number_has_bounds() -> None:
    unbounded = [
        name
        for name, spec, kind in possible_keys(sections())
        if kind in (int, float) and None in (spec.metadata["least"], spec.metadata["most"])
    ]
    assert unbounded == []


def test_what_live_numbers_allow_fits_64_bits_in_nanoseconds() -> None:
    assert max(spec.metadata["most"] for _, spec, kind in possible_keys(sections()) if kind in (int, float)) == BYTES
    assert YEAR_S * 10**9 < 1 << 63


VALUES = (
    "0",
    "-1",
    "1e999",
    "-1e999",
    "NaN",
    "1" + "0" * 400,
    "1" + "0" * 4_400,
    "1e-999",
    "0.5",
    "true",
    "null",
    '""',
    '"enforce"',
    '"1e999"',
    '"' + "9" * 400 + '"',
    "[" * 50 + "]" * 50,
    "[" * 20_000,
    '{"a":' * 2_000,
    "[]",
    "{}",
    '["a", 1]',
    '[["a"]]',
    '["/(a+)+b/"]',
    '["/a{99999999999}/"]',
    '["/(?P<a>x)(?P=a)/"]',
    '["/[/"]',
    '["\\ud800"]',
    '["\\u0000"]',
    '["//"]',
    '["/"]',
    '"/a|b/,c"',
    '"latest"',
    '"time:9999-12-31T23:59:59Z"',
    '"time:0000-00-00T00:00Z"',
    '["22:00-06:00"]',
    '["22:00-22:00"]',
    '["/a/b"]',
    json.dumps("/" + "(" * 3_000 + "a" + ")" * 3_000 + "/"),
)


def hostile(count: int) -> Iterator[tuple[bytes, bytes]]:
    """Records of every live key with these values, and with mutated bytes."""
    rng = random.Random(SEED)
    seeds = [record(name, value)[1] for name in list(LIVE)[::5] for value in VALUES if len(value) < 500]
    names = [name.encode() for name in LIVE]
    for body in mutated(seeds, count, "config"):
        key = rng.choice(names)
        if rng.random() < 0.5:
            yield record(key.decode(), rng.choice(VALUES))
        else:
            yield (key if rng.random() < 0.9 else next(mutated([key], 1, str(rng.random())))), body


def usable(settings: Settings) -> bool:
    """Whether the application can use these live settings."""
    for name in LIVE:
        value: Any = value_of(settings, name)
        if isinstance(value, int | float):
            assert 0 <= value <= BYTES
        if name.endswith(("topics", "exclude", "groups")) and not name.startswith("placement."):
            matches(value, "orders")
    return bool(repr(settings))


def test_no_record_of_the_config_topic_ends_a_start_or_a_run(caplog: pytest.LogCaptureFixture) -> None:
    """Each record is followed as the newest; after every hundred, a new `Live` loads these hundred."""
    caplog.set_level(logging.ERROR)
    taken: list[tuple[bytes, bytes]] = []
    refused = applied = 0
    live = loaded([])
    for at, found in enumerate(hostile(1_500)):
        taken.append(found)
        before = live.now
        see(live, found, at)
        applied += live.now is not before
        if live.now is not before:
            assert usable(live.now)
        if len(taken) == 100:
            refused += len(live.refused)
            assert loaded(taken).now == live.now
            live, taken = loaded([]), []
    assert min(refused, applied) > (COUNT or 1_500) // 50


def see(live: Live, found: tuple[bytes, bytes], offset: int) -> None:
    """One more record, as delivered by following the topic."""
    topic = Topic([found])
    for one in topic.read("config"):
        live._seen(one._replace(offset=offset))


def test_a_pattern_of_a_record_cannot_hold_the_interpreter() -> None:
    live = loaded([record("links.l.topics", '["/(a+)+b/"]')])
    began = time.process_time()
    assert not matches(live.now.table(LinkSettings)["l"].topics, "a" * 249)
    assert time.process_time() - began < 1
