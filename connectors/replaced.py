"""Files that clients read when they are made: certificates, keys, secrets. Clients are made anew if one is replaced."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
_FILES = ("tls.ca", "tls.certificate", "tls.key", "sasl.oauth.ca")


class Replaced:
    """The files that a section security names. ``options`` as in `state.settings.kafka_security`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._paths = [value for key, value in options.items() if key in _FILES or key.endswith(".file")]
        self._seen = self._look()

    def renewed(self, make: Callable[[], T]) -> T | None:
        """A new client if a file was replaced or changed since this object or the last client was made; otherwise None.
        Raises what ``make`` raises: the next call tries again."""
        state = self._look()
        if state == self._seen:
            return None
        client = make()
        self._seen = state
        return client

    def _look(self) -> list[object]:
        return [state_of(path) for path in self._paths]


def state_of(path: str | Path) -> object:
    """What changes when a file is written, replaced or removed, or its permissions, its owner or its error change."""
    try:
        status = os.stat(path)
    except OSError as error:
        return str(error.strerror)
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
