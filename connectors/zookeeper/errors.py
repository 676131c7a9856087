"""kazoo's errors as Trueup's: transient, permanent, or unknown outcome.

The client raises `NotSent` for a request that never left this process. Therefore a lost connection is
`Unknown` only for writes that were sent.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kazoo import exceptions as kazoo
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import RetryFailedError

from trueup.state.common.errors import Refused, Retry, Stop, TrueupError, Unknown


class NoNode(Refused):
    """The znode, or the parent of one to be created, does not exist."""


class NodeExists(Refused):
    """A znode to be created exists already."""


class BadVersion(Refused):
    """The znode was written since it was read."""


class NotEmpty(Refused):
    """A znode to be deleted has children."""


class NotSent(kazoo.ConnectionLoss):  # type: ignore[misc]
    """The connection was lost before the request was sent."""


class Forbidden(Stop):
    """This session lacks a permission on this znode."""


def unread(what: str, paths: Sequence[str]) -> Forbidden:
    """The error for znodes that this session may not read. ``what``: the subject of these znodes."""
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    todo = "grant READ to this identity in the znode's ACL"
    return Forbidden(f"permission to read {what}", f"none for {paths[0]}{more}", todo)


class TooOld(Stop):
    """The server does not support a request of ZooKeeper 3.6."""


GONE, FORBIDDEN = -101, -102
"""Error codes of single znodes in a multi read (org.apache.zookeeper.KeeperException.Code)."""

_STATES: dict[type[Exception], tuple[type[TrueupError], str, str]] = {
    kazoo.NoNodeError: (NoNode, "a znode that exists", "read again and decide again"),
    kazoo.NodeExistsError: (NodeExists, "a znode that does not exist yet", "read again and decide again"),
    kazoo.BadVersionError: (BadVersion, "the version that was read", "read again and decide again"),
    kazoo.NotEmptyError: (NotEmpty, "a znode without children", "leave it"),
    kazoo.UnimplementedError: (TooOld, "ZooKeeper 3.6 or newer", "upgrade the servers"),
    kazoo.NoAuthError: (Forbidden, "permission", "grant it to this identity in the znode's ACL"),
    kazoo.AuthFailedError: (Stop, "valid ZooKeeper credentials", "correct the ZooKeeper authentication"),
    kazoo.InvalidACLError: (Stop, "a valid ACL", "correct the ZooKeeper authentication"),
    kazoo.SessionClosedRequireSaslError: (Stop, "a SASL identity", "configure SASL for ZooKeeper"),
    kazoo.SASLException: (Stop, "a SASL handshake", "correct the SASL settings for ZooKeeper"),
    kazoo.QuotaExceededError: (Stop, "a quota that is not exceeded", "increase the ZooKeeper quota"),
    kazoo.ConfigurationError: (Stop, "valid client options", "correct the ZooKeeper settings"),
}
_REFUSED_WHOLE = (NotSent, kazoo.ConnectionClosedError, kazoo.ThrottledOpError, kazoo.NotReadOnlyCallError)
_LOST = (
    kazoo.ConnectionLoss,
    kazoo.ConnectionDropped,
    kazoo.SessionExpiredError,
    kazoo.SessionMovedError,
    kazoo.OperationTimeoutError,
    kazoo.RequestTimeoutError,
    kazoo.CancelledError,
    KazooTimeoutError,
    RetryFailedError,
)


def ours(error: Exception, doing: str, writing: bool) -> TrueupError:
    """Trueup's error for kazoo's. ``writing``: after a lost response it is unknown whether the write was applied."""
    for kind, (ours_kind, expected, todo) in _STATES.items():
        if isinstance(error, kind):
            return ours_kind(f"{expected}, {doing}", type(error).__name__, todo)
    found = f"{type(error).__name__} {error}".strip()
    if isinstance(error, _REFUSED_WHOLE):
        return Retry(f"a connection to ZooKeeper, {doing}", found, "nothing was sent; retry")
    if isinstance(error, _LOST):
        if writing:
            return Unknown(f"a response from ZooKeeper, {doing}", found, "read the result of the write")
        return Retry(f"a response from ZooKeeper, {doing}", found, "retry the request")
    return Stop(f"a valid response, {doing}", found, "check ZooKeeper's log")


@contextmanager
def translated(doing: str, writing: bool = False) -> Iterator[None]:
    """Convert kazoo's errors in the block. ``doing`` completes "expected a response, ..."."""
    try:
        yield
    except (kazoo.KazooException, KazooTimeoutError) as error:
        raise ours(error, doing, writing) from error
