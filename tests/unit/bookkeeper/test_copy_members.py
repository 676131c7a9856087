"""Changes of members in the metadata of a ledger."""

import pytest

from tests.unit.bookkeeper.test_metadata import HEAD, MEMBERS, V1, V2, V3, WHERE, message
from trueup.connectors.bookkeeper.copy.members import MemberChange, with_members
from trueup.connectors.bookkeeper.metadata.metadata import decode, protection
from trueup.state.common.errors import Refused

TARGET = "bk-9.example.org:3181"
CHANGE = MemberChange(0, 1, MEMBERS[1], TARGET)
UNKNOWN = b"\x92\x3e\x03new"
"""A field with the number 994 of a later version."""
FORMATS = pytest.mark.parametrize("data", [HEAD + b"2\n" + V2, message(V3)], ids=["text", "binary"])


def changed(data: bytes, *changes: MemberChange) -> bytes:
    return with_members(data, WHERE.path, changes)


@FORMATS
def test_only_the_member_changes(data: bytes) -> None:
    before, after = decode(data, WHERE), decode(changed(data, CHANGE), WHERE)
    fragment = {"first_entry": 0, "bookies": [MEMBERS[0], TARGET, MEMBERS[2]]}
    assert after == {**before, "fragments": [fragment]}


@FORMATS
def test_the_password_stays(data: bytes) -> None:
    assert protection(changed(data, CHANGE), WHERE.path) == protection(data, WHERE.path) == (1, b"s\0t")


@FORMATS
def test_the_format_stays(data: bytes) -> None:
    assert changed(data, CHANGE)[: len(HEAD) + 2] == data[: len(HEAD) + 2]


def test_fields_of_later_versions_stay() -> None:
    assert UNKNOWN in changed(message(V3 + UNKNOWN), CHANGE)


@pytest.mark.parametrize(
    ("data", "expected"),
    [(HEAD + b"1\n" + V1, "format 1"), (HEAD + b"2\n" + V2 + b"later: 1\n", "other text")],
    ids=["format 1", "text of a later version"],
)
def test_metadata_that_would_lose_something_are_refused(data: bytes, expected: str) -> None:
    with pytest.raises(Refused, match=expected):
        changed(data, CHANGE)


@pytest.mark.parametrize(
    "change",
    [
        CHANGE._replace(first_entry=7),
        CHANGE._replace(position=2),
        CHANGE._replace(position=9),
        CHANGE._replace(before="bk-4.example.org:3181"),
    ],
)
def test_a_fragment_that_is_not_as_expected_is_refused(change: MemberChange) -> None:
    with pytest.raises(Refused, match="another member"):
        changed(message(V3), change)


def test_no_bookie_gets_two_places_of_a_fragment() -> None:
    with pytest.raises(Refused, match="a member"):
        changed(message(V3), CHANGE._replace(after=MEMBERS[2]))
