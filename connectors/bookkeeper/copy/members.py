"""Replaces members of fragments in the metadata of a ledger, and nothing else.

The metadata keep their format and every field, also those that this program does not know.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from trueup.connectors.bookkeeper.metadata.metadata import message_of, written
from trueup.state.common.errors import Refused


class MemberChange(NamedTuple):
    """A bookie takes the place of another one in a fragment."""

    first_entry: int
    """The first entry of the fragment."""
    position: int
    """The place in the ensemble, from 0."""
    before: str
    after: str


def with_members(data: bytes, path: str, changes: Sequence[MemberChange]) -> bytes:
    """The metadata of a ledger, read from the znode at ``path``, after these changes. Raises `BadBytes`, and `Refused`
    if a fragment is not as a change expects it or the metadata cannot be changed without a loss."""
    message, version = message_of(data, path)
    for change in changes:
        members: Any = next((s.ensembleMember for s in message.segment if s.firstEntryId == change.first_entry), [])
        if change.before.encode() not in members[change.position : change.position + 1]:
            where = f"{change.before} at place {change.position} of the fragment from entry {change.first_entry} on"
            raise Refused(f"{where} in {path}", "another member", "read the metadata again")
        if change.after.encode() in members:
            raise Refused(f"{change.after} to be no member in {path}", "a member", "choose another bookie")
        members[change.position] = change.after.encode()
    return written(message, version)
