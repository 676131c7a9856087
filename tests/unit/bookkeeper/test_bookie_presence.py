"""Interpretation of unexpected or missing bookie responses, and resolution of bookie addresses."""

from collections.abc import Iterator

import pytest

from tests.peer import WAIT_S, Peer
from trueup.connectors.bookkeeper.deletion.presence import PresenceAnswer, presence
from trueup.connectors.bookkeeper.messages import ServiceInfo
from trueup.connectors.bookkeeper.metadata.addresses import address_of, endpoint
from trueup.connectors.tls import tls_of

GONE, HELD, SILENT = PresenceAnswer.GONE, PresenceAnswer.HELD, PresenceAnswer.SILENT
QUESTION = 19
"""Size of a read request for entry 0 of a ledger, in bytes."""
REGISTRATION = bytes.fromhex(  # bookie-rpc at 192.0.2.9:3181, http at 192.0.2.8:8000
    "32220a06626f6f6b696510ed181a093139322e302e322e39220a626f6f6b69652d727063"
    "321a0a046874747010c03e1a093139322e302e322e38220468747470"
)
HTTP_ALONE = REGISTRATION[36:]


@pytest.fixture
def peer() -> Iterator[Peer]:
    made = Peer()
    yield made
    made.close()


def response(question: int, code: str) -> str:
    """A response to this request: header (version 3, READ_ENTRY, txnId), status."""
    return f"0a060803100118{question:02x}10{code}"


def ask(peer: Peer, *ledgers: int) -> tuple[dict[int, PresenceAnswer], dict[int, str]]:
    """The presence result for each ledger, and the reason where the bookie is silent."""
    reasons: dict[tuple[int, str], str] = {}
    found = presence({i: ["b:1"] for i in ledgers}, lambda _bookie: peer.address, WAIT_S, reasons=reasons)
    return {i: of["b:1"] for i, of in found.items()}, {i: why for (i, _), why in reasons.items()}


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        ("00", HELD),
        ("9303", HELD),
        ("9203", GONE),
        ("f503", SILENT),
        ("f603", SILENT),
        ("fb03", SILENT),
        ("e707", SILENT),
    ],
)
def test_only_no_such_ledger_means_gone(peer: Peer, code: str, answer: PresenceAnswer) -> None:
    peer.answers(QUESTION, response(1, code))
    assert ask(peer, 7)[0] == {7: answer}


def test_an_inconclusive_response_is_the_reason(peer: Peer) -> None:
    peer.answers(QUESTION, response(1, "fb03"))
    assert ask(peer, 7)[1] == {7: "it responded with UNKNOWN_STATE"}


def test_what_was_answered_before_it_hung_up_counts(peer: Peer) -> None:
    peer.answers(3 * QUESTION, response(1, "9203"), response(3, "00"))
    found, reasons = ask(peer, 7, 8, 9)
    assert (found, list(reasons)) == ({7: GONE, 8: SILENT, 9: HELD}, [8])
    assert "found it closed the connection" in reasons[8]


def test_a_response_without_a_request_is_not_accepted(peer: Peer) -> None:
    peer.answers(QUESTION, response(5, "9203"))
    assert ask(peer, 7)[0] == {7: SILENT}


def test_a_server_of_another_protocol_is_silent(peer: Peer) -> None:
    peer.answers(QUESTION, b"HTTP/1.1 400 Bad Request".hex())
    found, reasons = ask(peer, 7)
    assert (found, "expected a protobuf message" in reasons[7]) == ({7: SILENT}, True)


def test_a_server_that_accepts_without_a_response_is_silent(peer: Peer) -> None:
    assert presence({7: ["b:1"]}, lambda _bookie: peer.address, 0.05) == {7: {"b:1": SILENT}}


@pytest.mark.parametrize("place", [("a..b", 3181), ("127.0.0.1", 70_000), ("x" * 70, 1)])
def test_what_is_no_address_is_silent(place: tuple[str, int]) -> None:
    assert presence({7: ["b:1"]}, lambda _bookie: place, WAIT_S) == {7: {"b:1": SILENT}}


def test_a_server_of_another_protocol_instead_of_tls_is_silent(peer: Peer) -> None:
    peer.answers(1, b"HTTP/1.1 400 Bad Request".hex())
    asked = {7: ["b:1"]}
    assert presence(asked, lambda _bookie: peer.address, WAIT_S, tls=tls_of({"tls.ca": "system"})) == {
        7: {"b:1": SILENT}
    }


def test_without_ledgers_no_bookie_is_queried() -> None:
    assert presence({7: []}, lambda _bookie: None, WAIT_S) == {7: {}}


def registration(host: bytes, port: int) -> bytes:
    made = ServiceInfo()
    made.endpoints.add(id=b"bookie", port=port, host=host, protocol=b"bookie-rpc")
    return bytes(made.SerializeToString())


@pytest.mark.parametrize(
    ("bookie", "registered", "address"),
    [
        ("b:1", REGISTRATION, ("192.0.2.9", 3181)),
        ("any-name", REGISTRATION, ("192.0.2.9", 3181)),
        ("b.example.org:3181", b"", ("b.example.org", 3181)),
        ("b:1", HTTP_ALONE, ("b", 1)),
        ("b:1", b"\xff", ("b", 1)),
        ("any-name", b"", None),
        ("any-name", HTTP_ALONE, None),
        ("any:name", b"", None),
        ("b:65536", b"", None),
        ("b:3181", registration(b"192.0.2.9", 0), ("b", 3181)),
        ("b:3181", registration(b"192.0.2.9", -1), ("b", 3181)),
        ("b:3181", registration(b"\xff", 3181), ("\ufffd", 3181)),
    ],
)
def test_where_a_registered_bookie_is(bookie: str, registered: bytes, address: tuple[str, int] | None) -> None:
    assert address_of(bookie, registered) == address


def test_the_endpoint_for_reads_is_the_one_that_counts() -> None:
    assert endpoint(HTTP_ALONE + REGISTRATION[:36]) == ("192.0.2.9", 3181)
