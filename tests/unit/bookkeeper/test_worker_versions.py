"""How the version of an AutoRecovery daemon is told."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.configuration import parse
from trueup.connectors.embedded.processes import free_port
from trueup.streams.bookkeeper.worker_checks import worker
from trueup.streams.bookkeeper.worker_versions import is_outdated, outdated

OLDER, NEWER = "/api/v1/bookie/gc", "/api/v1/bookie/gc/suspend_compaction"
CONFIGURATION = b'{"repairedPlacementPolicyNotAdheringBookieEnabled": "true"}'


@contextmanager
def daemon(*routes: str) -> Iterator[str]:
    """The address of a daemon with these routes. It responds as Vert.x does."""

    class Handler(BaseHTTPRequestHandler):
        def do_OPTIONS(self) -> None:
            self.answer(405 if self.path in routes else 404, b"")

        def do_GET(self) -> None:
            self.answer(200, CONFIGURATION)

        def answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture
def started() -> Iterator[Callable[..., str]]:
    with ExitStack() as stack:
        yield lambda *routes: stack.enter_context(daemon(*routes))


@pytest.mark.parametrize(
    ("routes", "old"),
    [((OLDER,), True), ((OLDER, NEWER), False), ((NEWER,), False), ((), False)],
    ids=["4.15", "4.16", "neither-known", "a-server-without-options"],
)
def test_a_daemon_without_the_route_of_4_16_is_older(
    started: Callable[..., str], routes: tuple[str, ...], old: bool
) -> None:
    assert is_outdated(started(*routes)) == old


def test_a_daemon_that_does_not_respond_is_not_taken_for_old() -> None:
    assert not is_outdated(f"127.0.0.1:{free_port()}")


def test_older_daemons_are_listed(started: Callable[..., str]) -> None:
    old, new = started(OLDER), started(OLDER, NEWER)
    assert outdated([new, old, f"http://{old}"]) == [old, f"http://{old}"]


def test_the_doctor_does_not_believe_the_flag_of_an_older_daemon(started: Callable[..., str]) -> None:
    check = next(worker(parse({"cluster": {"zookeeper": "zk:2181"}}), started(OLDER), {}, {}))
    assert (check.status, check.found) == ("fail", "BookKeeper before 4.16 does not repair placement")
