"""Callers of the API: the address that they use, the longest token that they send, and their roles."""

from enum import IntEnum

HOST, PORT = "127.0.0.1", 8480
"""Where the API listens by default."""
LONGEST_JWT = 16_384


class Role(IntEnum):
    """What a caller may do. Each role includes those below it."""

    VIEWER = 1
    REPORTER = 2
    APPROVER = 3
    ADMIN = 4

    @property
    def text(self) -> str:
        """The name in files and messages."""
        return self.name.lower()
