"""Framing of a stream that arrives in chunks; requests and responses of both protocol versions, byte for byte."""

from collections.abc import Callable, Iterator

import pytest

from tests.peer import WAIT_S, Peer
from trueup.connectors.bookkeeper.bookie.admin_calls import Calls, DiskUsage, Lac, LocatedEntries
from trueup.connectors.bookkeeper.bookie.bulk_reads import ReadConnection
from trueup.connectors.bookkeeper.bookie.codes import Code, NoSuchEntry, NoSuchLedger, failure
from trueup.connectors.bookkeeper.bookie.frames import BookieFrames
from trueup.connectors.tls import tls_of
from trueup.state.common.errors import BadBytes, BadSettings, Retry, Stop


def frames(*pieces: bytes, size: int = 16) -> BookieFrames:
    left = list(pieces)

    def receive(room: memoryview) -> int:
        if not left:
            return 0
        piece = left.pop(0)
        room[: len(piece)] = piece[: len(room)]
        if len(piece) > len(room):
            left.insert(0, piece[len(room) :])
        return min(len(piece), len(room))

    return BookieFrames(receive, "b:1", size)


def bodies(made: BookieFrames) -> list[bytes]:
    return [bytes(body) for body in iter(made.next, None)]


@pytest.mark.parametrize(
    "pieces", [(b"\0\0\0\2hi\0\0\0\0\0\0\0\3abc",), (b"\0", b"\0\0\2", b"h", b"i\0\0", b"\0\0\0\0\0", b"\3a", b"bc")]
)
def test_frames_are_cut_out_of_whatever_arrives(pieces: tuple[bytes, ...]) -> None:
    assert bodies(frames(*pieces)) == [b"hi", b"", b"abc"]


def test_a_frame_may_be_larger_than_the_buffer() -> None:
    large = bytes(range(200))
    assert bodies(frames(b"\0\0\0\1a\0\0\0\xc8" + large + b"\0\0\0\1b")) == [b"a", large, b"b"]


def test_a_stream_that_ends_within_a_frame_ends() -> None:
    assert bodies(frames(b"\0\0\0\1a\0\0\0\5bc")) == [b"a"]


@pytest.mark.parametrize(("size", "shown"), [(b"\xff\xff\xff\xff", "-1"), (b"HTTP", "1213486160")])
def test_what_is_no_length_is_refused_with_its_place(size: bytes, shown: str) -> None:
    made = frames(b"\0\0\0\1a" + size)
    made.next()
    with pytest.raises(BadBytes, match=f"at byte 5 of the stream from bookie b:1; found {shown};"):
        made.next()


@pytest.fixture
def peer() -> Iterator[Peer]:
    made = Peer()
    yield made
    made.close()


@pytest.fixture
def calls(peer: Peer) -> Iterator[Callable[[], Calls]]:
    made: list[Calls] = []

    def connect() -> Calls:
        made.append(Calls("b:1", peer.address, WAIT_S))
        return made[-1]

    yield connect
    for one in made:
        one.close()


@pytest.fixture
def reads(peer: Peer) -> Iterator[ReadConnection]:
    with ReadConnection("b:1", peer.address, WAIT_S) as made:
        yield made


# Request: 1 header (1 version, 2 operation, 3 txnId); Response: 1 header, 2 status; both: 100, 104, 105 by operation.
HEAD_READ, HEAD_LAC, HEAD_INFO = "0a06080310011801", "0a06080310071801", "0a06080310081801"


def test_one_entry_is_asked_for_without_flag_or_key(peer: Peer, calls: Callable[[], Calls]) -> None:
    peer.answers(19, HEAD_READ + "1000" + "a2060b" + "08001007" + "1803" + "2203616263")
    assert (calls().read(7, 3), peer.received()) == (
        LocatedEntries(Code.OK, b"abc"),
        "0000000f" + HEAD_READ + "a2060408071003",
    )


@pytest.mark.parametrize(("status", "code"), [("9203", Code.NO_LEDGER), ("9303", Code.NO_ENTRY)])
def test_that_there_is_no_such_thing_is_an_answer(
    peer: Peer, calls: Callable[[], Calls], status: str, code: Code
) -> None:
    peer.answers(19, HEAD_READ + f"10{status}" + "a20607" + f"08{status}" + "10071803")
    assert calls().read(7, 3) == LocatedEntries(code)


def test_many_ledgers_are_asked_for_at_once(peer: Peer, calls: Callable[[], Calls]) -> None:
    first, second = (f"0a060803100118{n:02x}10" + code for n, code in ((1, "00"), (2, "9203")))
    peer.answers(38, second, first)
    assert list(calls().codes([7, 8])) == [(8, Code.NO_LEDGER), (7, Code.OK)]


def test_a_bookie_that_requires_a_login_is_a_stop(peer: Peer, calls: Callable[[], Calls]) -> None:
    peer.answers(19, HEAD_READ + "10f603")
    with pytest.raises(Stop, match="expected entry 3 of ledger 7 from bookie b:1; found UNAUTHORIZED"):
        calls().read(7, 3)


def test_an_answer_that_is_no_message(peer: Peer, calls: Callable[[], Calls]) -> None:
    peer.answers(19, "ffff")
    with pytest.raises(BadBytes, match="expected a protobuf message at byte 0 of a response from bookie b:1"):
        calls().read(7, 3)


def test_what_proves_how_far_a_ledger_is_confirmed(peer: Peer, calls: Callable[[], Calls]) -> None:
    peer.answers(17, HEAD_LAC + "1000" + "c2060a" + "08001007" + "1a0161" + "220162")
    assert (calls().lac(7), peer.received()) == (Lac(b"a", b"b"), "0000000d" + HEAD_LAC + "c206020807")


def test_how_full_a_bookie_is(peer: Peer, calls: Callable[[], Calls]) -> None:
    peer.answers(17, HEAD_INFO + "1000" + "ca0606" + "0800" + "1064" + "1828")
    assert (calls().room(), peer.received()) == (DiskUsage(100, 40), "0000000d" + HEAD_INFO + "ca06020803")


def test_single_reads_in_bulk_carry_no_flags(peer: Peer, reads: ReadConnection) -> None:
    head = "02020000"
    peer.answers(
        48,
        head + "00000000" + "0000000000000007" + "0000000000000003" + "6162",
        head + "00000002" + "0000000000000007" + "0000000000000004",
    )
    found = [(entry, code, bytes(stored)) for entry, code, stored in reads.some(7, [3, 4])]
    asked = [f"00000014{head}0000000000000007{entry:016x}" for entry in (3, 4)]
    assert (found, peer.received()) == ([(3, Code.OK, b"ab"), (4, Code.NO_ENTRY, b"")], "".join(asked))


BATCH = "0000002802070000000000000000000700000000000000030000000000000001000000030000000000400000"
BATCH_HEAD = "0207000000000000000000000000000700000000000000030000000000000001"


def test_a_batch_is_cut_into_entries(peer: Peer, reads: ReadConnection) -> None:
    peer.answers(44, BATCH_HEAD + "000000026162" + "00000000" + "0000000163")
    found = [(entry, bytes(stored)) for entry, stored in reads.run(7, 3, 5)]
    assert (found, peer.received()) == ([(3, b"ab"), (4, b""), (5, b"c")], BATCH)


@pytest.mark.parametrize("rest", ["", "0000", "000000036162", "ffffffff"])
def test_a_batch_that_is_cut_short(peer: Peer, reads: ReadConnection, rest: str) -> None:
    peer.answers(44, BATCH_HEAD + rest)
    with pytest.raises(BadBytes, match="of a response from bookie b:1; found"):
        list(reads.run(7, 3, 5))


@pytest.mark.parametrize(("code", "kind"), [("01", NoSuchLedger), ("02", NoSuchEntry), ("65", Retry), ("66", Stop)])
def test_a_batch_that_is_refused(peer: Peer, reads: ReadConnection, code: str, kind: type[Exception]) -> None:
    peer.answers(44, f"02070000 000000{code} 0000000000000007 0000000000000003")
    with pytest.raises(kind, match="expected entry 3 of ledger 7 from bookie b:1"):
        list(reads.run(7, 3, 5))


def test_an_answer_about_another_ledger(peer: Peer, reads: ReadConnection) -> None:
    peer.answers(24, "02020000 00000000 0000000000000008 0000000000000003")
    with pytest.raises(BadBytes, match="expected a response to operation 2 on ledger 7"):
        list(reads.some(7, [3]))


def test_a_read_that_goes_on_after_another_began_is_stopped(peer: Peer, reads: ReadConnection) -> None:
    peer.answers(48, "02020000 00000000 0000000000000007 0000000000000003 61")
    first = reads.some(7, [3, 4])
    next(first)
    reads.ask(7, [])
    with pytest.raises(Stop, match="expected one read at a time from bookie b:1"):
        next(first)


def test_a_silent_bookie_is_asked_again(peer: Peer) -> None:
    with (
        ReadConnection("b:1", peer.address, 0.05) as reads,
        pytest.raises(Retry, match=r"bookie b:1; found no response for 0\.05 s"),
    ):
        list(reads.some(7, [3]))


def test_a_bookie_that_does_not_listen_is_asked_again(peer: Peer) -> None:
    peer.close()
    with pytest.raises(Retry, match="expected a response from bookie b:1; found Connection refused"):
        Calls("b:1", peer.address, WAIT_S)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (Code.NO_LEDGER, NoSuchLedger),
        (Code.NO_ENTRY, NoSuchEntry),
        (Code.UNAUTHORIZED, Stop),
        (Code.BAD_VERSION, Stop),
        (Code.IO, Retry),
        (Code.TOO_MANY, Retry),
        (Code.UNKNOWN_STATE, Retry),
        (999, Retry),
    ],
)
def test_refusals_have_a_remedy(code: int, kind: type[Exception]) -> None:
    assert type(failure(code, "entry 3 of ledger 7", "b:1")) is kind


def test_without_options_there_is_no_tls() -> None:
    assert tls_of({}) is None


def test_unknown_options_of_tls() -> None:
    with pytest.raises(BadSettings, match=r"tls\.cert: expected one of tls\.ca, "):
        tls_of({"tls.cert": "x"})


def test_files_of_tls_that_are_not_there() -> None:
    with pytest.raises(BadSettings, match=r"tls\.\*: .*No such file"):
        tls_of({"tls.ca": "/nowhere/ca.pem"})


def test_the_host_name_is_checked_unless_disabled() -> None:
    strict, lax = tls_of({"tls.ca": "system"}), tls_of({"tls.check.host": "false"})
    assert strict is not None
    assert lax is not None
    assert (strict.check_hostname, lax.check_hostname) == (True, False)
