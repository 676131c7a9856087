"""What kazoo raises, as our errors: later, never, or did it happen?

`NotSent` is how our client marks a request that never left this process, so that losing a connection is only
`Unknown` for the writes that were on the wire.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from kazoo import exceptions as kazoo
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import RetryFailedError

from trueup.state.common.errors import Refused, Retry, Stop, TrueupError, Unknown


class NoNode(Refused):
    """The znode, or the parent of one to be created, does not exist."""


class NodeExists(Refused):
    """A znode to be created is there already."""


class BadVersion(Refused):
    """The znode was written since it was read."""


class NotEmpty(Refused):
    """A znode to be deleted has children."""


class NotSent(kazoo.ConnectionLoss):  # type: ignore[misc]
    """The connection went before the request did."""


class Forbidden(Stop):
    """This session may not do that to this znode."""


class TooOld(Stop):
    """The server does not know a request that ZooKeeper 3.6 brought."""


GONE, FORBIDDEN = -101, -102
"""Error codes of single znodes in a multi read (org.apache.zookeeper.KeeperException.Code)."""

_STATES: dict[type[Exception], tuple[type[TrueupError], str, str]] = {
    kazoo.NoNodeError: (NoNode, "a znode that exists", "read again and decide afresh"),
    kazoo.NodeExistsError: (NodeExists, "a znode that does not exist yet", "read again and decide afresh"),
    kazoo.BadVersionError: (BadVersion, "the version that was read", "read again and decide afresh"),
    kazoo.NotEmptyError: (NotEmpty, "a znode without children", "leave it"),
    kazoo.UnimplementedError: (TooOld, "ZooKeeper 3.6 or newer", "upgrade the servers"),
    kazoo.NoAuthError: (Forbidden, "permission", "give this identity the right in the znode's ACL"),
    kazoo.AuthFailedError: (Stop, "credentials that the server accepts", "correct the ZooKeeper authentication"),
    kazoo.InvalidACLError: (Stop, "an ACL that the server accepts", "correct the ZooKeeper authentication"),
    kazoo.SessionClosedRequireSaslError: (Stop, "a SASL identity", "configure SASL for ZooKeeper"),
    kazoo.SASLException: (Stop, "a SASL handshake", "correct the SASL settings for ZooKeeper"),
    kazoo.QuotaExceededError: (Stop, "room in the quota", "raise the ZooKeeper quota"),
    kazoo.ConfigurationError: (Stop, "usable client options", "correct the ZooKeeper settings"),
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
    """Our error for kazoo's. ``writing``: a lost answer leaves it unknown whether the write was done."""
    for kind, (ours_kind, expected, todo) in _STATES.items():
        if isinstance(error, kind):
            return ours_kind(f"{expected}, {doing}", type(error).__name__, todo)
    found = f"{type(error).__name__} {error}".strip()
    if isinstance(error, _REFUSED_WHOLE):
        return Retry(f"a connection to ZooKeeper, {doing}", found, "nothing was sent; try again")
    if isinstance(error, _LOST):
        if writing:
            return Unknown(f"an answer of ZooKeeper, {doing}", found, "read what became of it")
        return Retry(f"an answer of ZooKeeper, {doing}", found, "try again")
    return Stop(f"an answer that makes sense, {doing}", found, "look into ZooKeeper's log")


@contextmanager
def translated(doing: str, writing: bool = False) -> Iterator[None]:
    """Let kazoo's errors out of the block as ours. ``doing`` completes "expected an answer, ..."."""
    try:
        yield
    except (kazoo.KazooException, KazooTimeoutError) as error:
        raise ours(error, doing, writing) from error
