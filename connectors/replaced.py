"""Files that clients read when they are made: certificates, keys, secrets. Clients are made anew if one is replaced."""

import os
from collections.abc import Mapping
from pathlib import Path

_FILES = ("tls.ca", "tls.certificate", "tls.key", "sasl.oauth.ca")


class Replaced:
    """The files that a section security names. ``options`` as in `state.settings.kafka_security`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._paths = [value for key, value in options.items() if key in _FILES or key.endswith(".file")]
        self._seen = self._look()

    def __call__(self) -> bool:
        """Whether a file was replaced or changed since the previous call, or since this object was made."""
        before, self._seen = self._seen, self._look()
        return self._seen != before

    def _look(self) -> list[object]:
        return [state_of(path) for path in self._paths]


def state_of(path: str | Path) -> object:
    """What changes when a file is written, replaced or removed, or its permissions, its owner or its error change."""
    try:
        found = os.stat(path)
    except OSError as error:
        return str(error.strerror)
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
