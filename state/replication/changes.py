"""The kinds of changes that links make at their targets."""

from enum import IntEnum


class ChangeKind(IntEnum):
    """The kind of an action, in order of execution: permissions are never wider than at the source meanwhile."""

    CREATE = 0
    SECURE = 1  # settings without which copied records would be lost
    GROW = 2
    SET = 3
    DENY = 4
    REVOKE = 5
    ALLOW = 6
    RELENT = 7  # remove denials
    SET_GROUP = 8
