"""Errors of a client when the sandbox does not respond."""

import select
import socket
import threading
from pathlib import Path

import pytest

from trueup.sandbox.control import SOCKET, Remote
from trueup.state.common.errors import Unknown


def test_a_sandbox_that_ends_before_it_answers_leaves_the_outcome_unknown(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / SOCKET))
        listener.listen()

        def hang_up() -> None:
            connection, _ = listener.accept()
            with connection:
                select.select([connection], [], [], 10)  # closing with unread bytes resets the connection

        ending = threading.Thread(target=hang_up)
        ending.start()
        with pytest.raises(Unknown, match="a response from the sandbox"):
            Remote(tmp_path).request("down")
        ending.join()
