import struct
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.unit.descriptors import SELECTABLE, taken
from tests.unit.rocketmq.peers import Handler, Peer, answer, frame
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.rocketmq.client.codes import RequestCode
from trueup.connectors.rocketmq.client.connection import ConnectionOptions, RocketMqConnection, RocketMqRequest
from trueup.state.common.errors import BadBytes, Retry, Stop, TrueupError, Unknown

READ = RocketMqRequest(RequestCode.MAX_OFFSET, "read", {"topic": "t"})
WRITE = RocketMqRequest(RequestCode.SEND, "write", {}, b"body", changes=True)
QUICK, USUAL = ConnectionOptions(timeout_s=0.2), ConnectionOptions()
MB = 1 << 20


@contextmanager
def linked(handler: Handler, access: ConnectionOptions = USUAL, pace_s: float = 0.0) -> Iterator[RocketMqConnection]:
    with Peer(handler, pace_s) as peer, RocketMqConnection(peer.address, access) as connection:
        yield connection


def test_responses_in_another_order_find_their_requests() -> None:
    kept: list[bytes] = []

    def last_first(request: dict[str, Any]) -> bytes:
        kept.insert(0, answer(request, offset=str(request["opaque"])))
        return b"".join(kept) if len(kept) == 3 else b""

    with linked(last_first) as connection:
        flights = [connection.submit(READ) for _ in range(3)]
        assert [connection.wait(each).number("offset") for each in flights] == [1, 2, 3]


def test_a_response_is_seen_to_have_arrived_without_waiting() -> None:
    with linked(lambda request: answer(request) if request["opaque"] == 2 else b"") as connection:
        first, second = connection.submit(READ), connection.submit(READ)
        wait_until(lambda: connection.arrived(second), 60.0, "the response")
        assert not connection.arrived(first)


def test_a_connection_is_looked_at_behind_many_descriptors() -> None:
    with taken(), linked(answer) as connection:
        connection.ask(READ)
        assert (connection.fileno() > SELECTABLE, connection.ended()) == (True, False)


def test_a_lost_connection_is_seen_without_waiting() -> None:
    with linked(lambda _: None) as connection:
        flight = connection.submit(WRITE)
        wait_until(lambda: connection.arrived(flight), 60.0, "the end of the connection")
        with pytest.raises(Unknown):
            connection.wait(flight)


def test_requests_of_the_server_are_passed_over() -> None:
    def noisy(request: dict[str, Any]) -> bytes:
        return frame({"code": 40, "opaque": request["opaque"], "flag": 2}) + answer(request)

    with linked(noisy) as connection:
        assert connection.ask(READ).code == 0


@pytest.mark.parametrize(("request_", "kind"), [(READ, Retry), (WRITE, Unknown)])
@pytest.mark.parametrize("handler", [lambda _: b"", lambda _: None], ids=["silent", "closed"])
def test_a_lost_response_leaves_the_outcome_of_a_change_unknown(
    handler: Callable[[dict[str, Any]], bytes | None], request_: RocketMqRequest, kind: type[TrueupError]
) -> None:
    with linked(handler, QUICK) as connection, pytest.raises(kind):
        connection.ask(request_)


def test_a_server_that_answers_byte_by_byte_is_late_after_the_time_out() -> None:
    with linked(answer, QUICK, 0.02) as connection, pytest.raises(Retry, match="in time"):
        connection.ask(READ)


def test_one_lost_connection_is_told_to_every_request_in_its_own_way() -> None:
    with linked(lambda request: None if request["opaque"] == 3 else b"") as connection:
        flights = [connection.submit(each) for each in (WRITE, READ, WRITE)]
        told = []
        for flight in flights:
            with pytest.raises(TrueupError) as error:
                connection.wait(flight)
            told.append(type(error.value))
    assert told == [Unknown, Retry, Unknown]


def test_a_request_on_a_lost_connection_was_not_sent() -> None:
    with linked(lambda _: None) as connection:
        with pytest.raises(Retry):
            connection.ask(READ)
        with pytest.raises(Retry):
            connection.submit(WRITE)
        assert connection.lost


@pytest.mark.parametrize("size", [-1, 0, 3, (1 << 26) + 1, (1 << 31) - 1])
def test_a_length_that_no_frame_has_costs_the_connection(size: int) -> None:
    with linked(lambda _: struct.pack(">i", size) + bytes(100)) as connection:
        with pytest.raises(BadBytes):
            connection.ask(READ)
        assert connection.lost


def test_a_declared_length_takes_no_memory_before_its_bytes_come() -> None:
    with linked(lambda _: struct.pack(">i", 1 << 26) + bytes(100), QUICK) as connection:
        tracemalloc.start()
        try:
            with pytest.raises(Retry):
                connection.ask(READ)
            assert tracemalloc.get_traced_memory()[1] < 4 * MB
        finally:
            tracemalloc.stop()


def test_large_and_small_frames_come_whole() -> None:
    sizes = [5 * MB, 10, 20 * MB, 70_000, 0]
    bodies = [bytes(range(256)) * (size // 256) for size in sizes]
    with linked(lambda r: answer(r, body=bodies[r["opaque"] - 1])) as connection:
        assert [bytes(connection.ask(READ).body) for _ in sizes] == bodies


def test_a_response_that_nobody_asked_for_costs_the_connection() -> None:
    with (
        linked(lambda r: answer({"opaque": r["opaque"] + 5})) as connection,
        pytest.raises(BadBytes, match="number of a request"),
    ):
        connection.ask(READ)


@pytest.mark.parametrize("text", ["x", "", "9223372036854775808", "9" * 5_000])
def test_a_number_that_is_none_is_refused_with_its_name(text: str) -> None:
    with linked(lambda r: answer(r, offset=text)) as connection, pytest.raises(BadBytes, match="the number offset"):
        connection.ask(READ).number("offset")


def test_a_server_that_is_not_there_is_worth_another_try() -> None:
    with Peer(lambda _: None) as peer:
        address = peer.address
    with pytest.raises(Retry, match=address):
        RocketMqConnection(address, ConnectionOptions())


def test_an_error_response_leaves_the_connection_usable() -> None:
    with linked(lambda r: answer(r, code=29 if r["opaque"] == 1 else 0)) as connection:
        with pytest.raises(Stop):
            connection.ask(READ)
        assert connection.ask(READ).code == 0


def test_a_connection_to_a_server_that_stops_ends_after_the_responses_in_flight() -> None:
    with linked(lambda r: answer(r, code=1500 if r["opaque"] == 1 else 0)) as connection:
        first, second = connection.submit(READ), connection.submit(READ)
        with pytest.raises(Retry):
            connection.wait(first)
        with pytest.raises(Retry):
            connection.submit(READ)
        assert (connection.wait(second).code, connection.lost) == (0, True)


def test_numbers_of_requests_start_again_before_they_are_too_large_for_java() -> None:
    with linked(answer) as connection:
        connection._opaque = (1 << 31) - 2
        assert [connection.submit(READ).opaque for _ in range(2)] == [(1 << 31) - 1, 1]
