"""Errors of kazoo are classified: retry, stop, or read the state first."""

import pytest
from kazoo import exceptions as kazoo
from kazoo.handlers.threading import KazooTimeoutError

from trueup.connectors.zookeeper.errors import (
    BadVersion,
    Forbidden,
    NodeExists,
    NoNode,
    NotEmpty,
    NotSent,
    TooOld,
    translated,
)
from trueup.state.common.errors import Retry, Stop, TrueupError, Unknown


@pytest.mark.parametrize(
    ("raised", "reading", "writing"),
    [
        (kazoo.ConnectionLoss(), Retry, Unknown),
        (kazoo.SessionExpiredError(), Retry, Unknown),
        (kazoo.OperationTimeoutError(), Retry, Unknown),
        (kazoo.SessionMovedError(), Retry, Unknown),
        (KazooTimeoutError("no answer"), Retry, Unknown),
        (NotSent(), Retry, Retry),
        (kazoo.ConnectionClosedError(), Retry, Retry),
        (kazoo.ThrottledOpError(), Retry, Retry),
        (kazoo.NotReadOnlyCallError(), Retry, Retry),
        (kazoo.NoNodeError(), NoNode, NoNode),
        (kazoo.NodeExistsError(), NodeExists, NodeExists),
        (kazoo.BadVersionError(), BadVersion, BadVersion),
        (kazoo.NotEmptyError(), NotEmpty, NotEmpty),
        (kazoo.NoAuthError(), Forbidden, Forbidden),
        (kazoo.UnimplementedError(), TooOld, TooOld),
        (kazoo.AuthFailedError(), Stop, Stop),
        (kazoo.SessionClosedRequireSaslError(), Stop, Stop),
        (kazoo.DataInconsistency(), Stop, Stop),
    ],
)
def test_each_error_is_translated(raised: Exception, reading: type[TrueupError], writing: type[TrueupError]) -> None:
    kinds = []
    for write in (False, True):
        with pytest.raises(TrueupError) as caught, translated("working", write):
            raise raised
        kinds.append(type(caught.value))
    assert kinds == [reading, writing]


def test_errors_that_are_not_kazoos_pass() -> None:
    with pytest.raises(ZeroDivisionError), translated("working"):
        raise ZeroDivisionError
