"""What a Spark task does: it copies one stripe of a ledger that the driver has locked. No secret is passed to it."""

import ssl
import time
from collections.abc import Callable
from typing import NamedTuple

from trueup.connectors.bookkeeper.bookie.reader import Damage
from trueup.connectors.bookkeeper.bookie.security import bookie_tls
from trueup.connectors.bookkeeper.copy.remote_copy import CopyOrder, copied
from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.connectors.zookeeper.session import client_of
from trueup.state.common.errors import TrueupError
from trueup.state.settings.settings import ClusterSettings

BOOKIE_S = 10.0
"""The maximum time without a response of a bookie."""
MOST_DAMAGES = 20


class CopyTask(NamedTuple):
    """The argument of a task."""

    cluster: ClusterSettings
    paths: BookKeeperPaths
    order: CopyOrder


class CopyResult(NamedTuple):
    """The result of a task."""

    entries: int = 0
    bytes: int = 0
    damages: tuple[Damage, ...] = ()
    """Replicas that could not be used; the first of them."""
    error: TrueupError | None = None
    """Why the stripe was not copied; None if it was."""


def run(task: CopyTask) -> CopyResult:
    """Copy the stripe of a task."""
    try:
        client = client_of(task.cluster).open()
        try:
            return copy_stripe(client, task.paths, task.order, bookie_tls(task.cluster.bookies))
        finally:
            client.shut()
    except TrueupError as error:
        return CopyResult(error=error)


def copy_stripe(
    client: ZooKeeperClient,
    paths: BookKeeperPaths,
    order: CopyOrder,
    tls: ssl.SSLContext | None,
    clock: Callable[[], float] = time.monotonic,
) -> CopyResult:
    """Copy a stripe with this session."""
    damages: list[Damage] = []
    try:
        done = copied(client, paths, order, BOOKIE_S, tls, damages.append, clock)
    except TrueupError as error:
        return CopyResult(damages=tuple(damages[:MOST_DAMAGES]), error=error)
    return CopyResult(done.entries, done.bytes, tuple(damages[:MOST_DAMAGES]))
