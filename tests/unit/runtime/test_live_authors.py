"""Who changed a setting, and the bound of modes, whatever a record or a caller asks for."""

import json
import logging
from collections.abc import Iterable
from typing import Any, cast

import fastavro
import pytest

from tests.configuration import parse
from tests.unit.runtime.test_live import Topic, record, see
from trueup.state.common.errors import BadBytes, BadSettings, Retry
from trueup.state.placement.settings import PlacementSettings
from trueup.state.replication.settings import LinkSettings
from trueup.streams.config.live import Live
from trueup.streams.journal.codec import decode, encode
from trueup.streams.journal.history import WHO, History
from trueup.streams.journal.journal import Journal

RAW: dict[str, Any] = {
    "cluster": {"zookeeper": "zk:2181"},
    "kafka": {"east": {"bootstrap": "e:1", "bit": 0}, "west": {"bootstrap": "w:1", "bit": 1}},
    "links": {
        "l": {"source": "east", "target": "west", "topics": ["orders"]},
        "m": {"source": "west", "target": "east", "topics": ["orders"]},
    },
}


class Journaled(Topic):
    """The config topic, whose records arrive at once. ``live``: who follows it."""

    live: Live
    down = False

    def put(self, records: Iterable[tuple[str, bytes, Any]]) -> None:
        if self.down:
            raise Retry("an acknowledgement", "none", "try again")
        for what, key, value in records:
            self.records = [*self.records, (key, encode(what, value) if value is not None else b"")]
            self.written = value
            if value is not None:
                see(self.live, (key, encode(what, value)), len(self.records))


def live_of(bounds: dict[str, str] | None = None, records: list[tuple[bytes, bytes]] | None = None) -> Live:
    topic, history = Journaled(records or []), History()
    raw = {**RAW, **({"access": {"modes_at_most": bounds}} if bounds else {})}
    topic.live = live = Live(parse(raw), cast("Journal", topic), lambda: 5, history)
    live.load()
    live._following = True
    live.topic, live.written = topic, history  # type: ignore[attr-defined]
    return live


def history(live: Live) -> list[tuple[str, str, str]]:
    return [(row.who, row.outcome, row.detail) for row in live._history.rows()] if live._history else []


@pytest.fixture(autouse=True)
def _caller() -> Any:
    token = WHO.set("ada at 10.0.0.1")
    yield
    WHO.reset(token)


def test_a_change_is_written_with_its_caller(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    live = live_of()
    live.set("placement.mode", "approve")
    [logged] = [line.__dict__ for line in caplog.records if line.message == "setting changed"]
    assert (live.topic.written["by"], logged["by"]) == ("ada at 10.0.0.1", "ada at 10.0.0.1")  # type: ignore[attr-defined]
    assert history(live) == []  # `streams.api` adds the row of its own requests


def test_a_change_of_another_program_is_attributed_to_the_topic() -> None:
    live = live_of()
    see(live, record("placement.mode", '"approve"'), 1)
    claimed = {"name": "placement.mode", "value": '"enforce"', "at_ms": 0, "by": "root"}
    see(live, (b"placement.mode", encode("config", claimed)), 2)
    assert history(live) == [
        ("config topic", "set", "placement.mode: observe > approve"),
        ("config topic (root)", "set", "placement.mode: approve > enforce"),
    ]


def test_records_of_earlier_runs_are_not_new_changes() -> None:
    live = live_of(records=[record("placement.mode", '"approve"')])
    see(live, record("placement.mode", '"approve"'), 0)
    assert (live.now.section(PlacementSettings).mode, history(live)) == ("approve", [])


def test_a_change_that_was_not_written_is_not_taken_for_a_later_one() -> None:
    live = live_of()
    live.topic.down = True  # type: ignore[attr-defined]
    with pytest.raises(Retry):
        live.set("placement.mode", "approve")
    see(live, record("placement.mode", '"approve"'), 1)
    assert [who for who, _, _ in history(live)] == ["config topic"]


@pytest.mark.parametrize(
    ("bounds", "key", "asked", "applies"),
    [
        ({"placement": "approve"}, "placement.mode", "enforce", "approve"),
        ({"placement": "observe"}, "placement.mode", "approve", "observe"),
        ({"placement": "approve"}, "placement.mode", "approve", "approve"),
        ({"links": "observe"}, "placement.mode", "enforce", "enforce"),
    ],
)
def test_a_record_cannot_set_a_mode_above_its_bound(bounds: dict[str, str], key: str, asked: str, applies: str) -> None:
    live = live_of(bounds)
    see(live, record(key, json.dumps(asked)), 1)
    assert live.now.section(PlacementSettings).mode == applies
    assert bool(live.refused) is (asked != applies)


def test_a_bounded_record_is_shown_with_its_place_until_a_valid_one() -> None:
    live = live_of({"placement": "approve"}, [record("placement.mode", '"enforce"')])
    [(where, problem)] = live.refused.values()
    assert (where, problem) == (
        "offset 0",
        "placement.mode: expected at most approve, by access.modes_at_most; found enforce; approve applies",
    )
    see(live, record("placement.mode", '"observe"'), 1)
    assert live.refused == {}


@pytest.mark.parametrize(
    "bounds", [{"links": "observe"}, {"links": "approve", "links.l": "observe"}, {"links.l": "observe"}]
)
def test_the_lowest_bound_of_a_link_applies(bounds: dict[str, str]) -> None:
    raw_modes = {"l": {**RAW["links"]["l"], "mode": "observe"}, "m": {**RAW["links"]["m"], "mode": "observe"}}
    live = Live(
        parse({**RAW, "links": raw_modes, "access": {"modes_at_most": bounds}}),
        cast("Journal", Topic([record("links.l.mode", '"enforce"')])),
        lambda: 0,
    )
    live.load()
    assert live.now.table(LinkSettings)["l"].mode == "observe"


def test_a_caller_cannot_set_a_mode_above_its_bound() -> None:
    live = live_of({"placement": "approve"})
    with pytest.raises(BadSettings, match=r"at most approve, by access.modes_at_most; found enforce"):
        live.set("placement.mode", "enforce")
    assert live.set("placement.mode", "approve") == "approve"


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ({"access": {"modes_at_most": {"placement": "loud"}}}, "modes_at_most.placement: expected one of observe"),
        ({"access": {"modes_at_most": {"placment": "observe"}}}, "did you mean placement"),
        ({"access": {"modes_at_most": {"links.x": "observe"}}}, "modes_at_most.links.x: expected one of"),
        (
            {"access": {"modes_at_most": {"placement": "approve"}}, "placement": {"mode": "enforce"}},
            "placement.mode: expected at most approve",
        ),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(raw: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadSettings, match=problem):
        parse({"cluster": {"zookeeper": "zk:2181"}, **raw})


def earlier(topic: str, fields: int, value: dict[str, Any]) -> bytes:
    """A record as an earlier release wrote it, with the first fields of the schema."""
    from io import BytesIO

    from trueup.streams.journal.codec import schema_text

    whole = json.loads(schema_text(topic))
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema({**whole, "fields": whole["fields"][:fields]}), value)
    return out.getvalue()


def test_a_setting_of_an_earlier_release_is_read() -> None:
    old = earlier("config", 3, {"name": "placement.mode", "value": '"approve"', "at_ms": 7})
    assert decode("config", old) == {"name": "placement.mode", "value": '"approve"', "at_ms": 7, "by": ""}


def test_a_truncated_record_of_another_topic_is_refused() -> None:
    whole = {"link": "l", "topic": "t", "partition": 0, "part": 1, "head": {"a": 1}, "source": [1], "target": [2]}
    body = encode("offsets", {**whole, "count": [3]})
    for size in range(len(body)):
        with pytest.raises(BadBytes):
            decode("offsets", body[:size])


def test_an_earlier_release_reads_a_setting_of_this_one() -> None:
    body = encode("config", {"name": "n", "value": "1", "at_ms": 7, "by": "ada"})
    assert body.startswith(earlier("config", 3, {"name": "n", "value": "1", "at_ms": 7}))
