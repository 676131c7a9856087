"""Records of what links remember that their readers cannot parse: each is a problem with a place, and a repair removes
it."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.runtime.test_unreadable import Broker, journal
from trueup.connectors.contract import LogId, Run
from trueup.state.replication.offset_map import OffsetMap
from trueup.streams.journal import repair
from trueup.streams.replication.links.checkpoints import Copy, load
from trueup.streams.replication.topics import MEMORY, OFFSETS

RIGHT = '[["topic", "literal", "orders", "User:a", "*", "read", "allow"]]'
SOUND = (("l", RIGHT), ("l", "[]"), ("l/made", '["orders"]'), ("l/target", "any text"))
WRONG = (
    ("l", "[5]"),
    ("l", "not JSON"),
    ("l", "[" * 100_000),
    ("l", '[["topic"]]'),
    ("l", "{}"),
    ("l", "[[1, 2, 3, 4, 5, 6, 7]]"),
    ("l/made", "[7]"),
    ("l/made", '"orders"'),
    ("l/other", "[]"),
)


def record(name: str, value: str) -> tuple[str, bytes, dict[str, Any]]:
    return MEMORY, name.encode(), {"name": name, "value": value, "at_ms": 0}


@pytest.mark.parametrize(("name", "value"), SOUND)
def test_what_a_link_remembers_is_readable(name: str, value: str) -> None:
    made = journal(Broker())
    made.put([record(name, value)])
    assert ([found["value"] for found in made.newest(MEMORY).values()], made.unreadable.problems()) == ([value], [])


@pytest.mark.parametrize(("name", "value"), WRONG)
@pytest.mark.parametrize("signed", [False, True])
def test_what_its_reader_cannot_parse_is_a_problem_with_a_place_until_a_repair(
    name: str, value: str, signed: bool, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("k" * 32)
    broker, key_file = Broker(), tmp_path / "key" if signed else None
    made = journal(broker, key_file)
    made.put([record(name, "[]"), record(name, value)])
    (bad,) = repair.find(made)[0]
    repair.execute(made, repair.plan(made))
    later = journal(broker, key_file)
    held = [] if name == "l/other" else ["[]"]  # no record of that name is readable
    assert (bad.offset, [found["value"] for found in later.newest(MEMORY).values()]) == (1, held)
    assert later.unreadable.all() == []


@pytest.mark.parametrize(
    ("part", "change"),
    [(-1, {"head": {"runs": 1}}), (0, {"source": [1, 2, 3]}), (0, {"count": []})],
    ids=["a head without bounds", "more source offsets", "no counts"],
)
def test_a_part_that_no_offset_map_has_is_a_problem_with_a_place(part: int, change: dict[str, Any]) -> None:
    made, log = journal(Broker()), LogId("orders", 0)
    copy = Copy(log, log, 0, map=OffsetMap().extend([Run(0, 0, 10)], 10))
    made.put(copy.records("l", 0))
    key = f"l/{log}/{part}".encode()
    value = next(
        value for what, at, value in Copy(log, log, 0, map=copy.map).records("l", 0) if (what, at) == (OFFSETS, key)
    )
    made.put([(OFFSETS, key, {**value, **change})])
    found = load(made)["l"][log].map
    assert ([bad.key for bad in made.unreadable.all()], found.translate(5).offset) == ([key], 5)
