"""Frames, entries and stripes are correct for any chunk size, payload and ensemble."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup.connectors.bookkeeper.bookie.entries import DamagedEntry, Digest, DigestType, head_of
from trueup.connectors.bookkeeper.bookie.frames import BookieFrames
from trueup.connectors.bookkeeper.bookie.striping import EnsembleRange, held, pieces, write_set
from trueup.state.bookkeeper.observations import FragmentRecord

LONG = 2**63 - 1
ids = st.integers(0, LONG)
sizes = st.integers(1, 9).flatmap(lambda size: st.tuples(st.just(size), st.integers(1, size)))


@given(st.lists(st.binary(max_size=80), max_size=12), st.lists(st.integers(1, 40)), st.integers(1, 64))
def test_frames_do_not_depend_on_how_the_stream_was_cut(bodies: list[bytes], cuts: list[int], size: int) -> None:
    left = memoryview(b"".join(len(body).to_bytes(4, "big") + body for body in bodies))
    steps = iter(cuts)

    def receive(room: memoryview) -> int:
        nonlocal left
        got = min(len(room), len(left), next(steps, 1000))
        room[:got], left = left[:got], left[got:]
        return got

    frames = BookieFrames(receive, "b:1", size)
    assert [bytes(body) for body in iter(frames.next, None)] == bodies


@given(
    st.sampled_from(DigestType), ids, ids, st.integers(-1, LONG), ids, st.binary(max_size=200), st.binary(max_size=20)
)
def test_entries_come_back_as_they_were_sealed(
    kind: DigestType, ledger: int, entry: int, confirmed: int, length: int, payload: bytes, password: bytes
) -> None:
    digest = Digest(kind, password)
    stored = memoryview(digest.seal(head_of(ledger, entry, confirmed, length), payload))
    digest.check(ledger, entry, stored)
    assert (digest.entry(ledger, stored), bytes(stored[digest.offset :])) == ((entry, confirmed), payload)


@given(st.sampled_from([DigestType.CRC32, DigestType.CRC32C, DigestType.HMAC]), st.binary(max_size=60), st.data())
def test_no_flipped_bit_goes_unnoticed(kind: DigestType, payload: bytes, data: st.DataObject) -> None:
    digest = Digest(kind, b"secret")
    stored = bytearray(digest.seal(head_of(5, 6, 4, 99), payload))
    stored[data.draw(st.integers(0, len(stored) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(DamagedEntry):
        digest.check(5, 6, memoryview(stored))


@given(st.sampled_from(DigestType), st.binary(max_size=80))
def test_arbitrary_bytes_are_read_or_refused_as_an_entry(kind: DigestType, stored: bytes) -> None:
    with pytest.raises(DamagedEntry):
        Digest(kind).check(LONG, LONG, memoryview(stored))


@given(sizes, st.integers(0, 30), st.integers(0, 30))
def test_what_a_position_holds_is_what_write_sets_give_it(sizes: tuple[int, int], first: int, last: int) -> None:
    ensemble, quorum = sizes
    piece = EnsembleRange(first, last, tuple(f"b{n}:1" for n in range(ensemble)))
    for position in range(ensemble):
        expected = [e for e in range(first, last + 1) if position in write_set(e, ensemble, quorum)]
        assert held(piece, position, quorum) == expected


@given(sizes, ids)
def test_a_write_set_is_a_quorum_of_neighbours(sizes: tuple[int, int], entry: int) -> None:
    ensemble, quorum = sizes
    found = write_set(entry, ensemble, quorum)
    assert (len(set(found)), found[0]) == (quorum, entry % ensemble)
    assert all((after - before) % ensemble == 1 for before, after in itertools.pairwise(found))


@given(st.sets(st.integers(1, 40), max_size=5), st.integers(0, 50), st.integers(-1, 50))
def test_pieces_are_the_entries_of_their_fragments(starts: set[int], first: int, last: int) -> None:
    begins = [0, *sorted(starts)]
    fragments: list[FragmentRecord] = [{"first_entry": at, "bookies": [f"b{at}:1"]} for at in begins]
    found = [
        (e, piece.bookies[0]) for piece in pieces(fragments, first, last) for e in range(piece.first, piece.last + 1)
    ]
    assert found == [(e, f"b{max(at for at in begins if at <= e)}:1") for e in range(first, last + 1)]
