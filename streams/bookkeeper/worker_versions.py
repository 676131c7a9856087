"""Whether an AutoRecovery daemon can repair placement (BP-54), which came in BookKeeper 4.16.

No route of a daemon tells its version, and its configuration contains the flag of BP-54 also where no code reads it.
The route `gc/suspend_compaction` came in 4.16.0, `gc` is older (HttpRouter.java). OPTIONS, which no route handles and
which runs nothing, is answered with 405 where a route exists and with 404 where it does not.
"""

from collections.abc import Iterable

import urllib3
from urllib3.exceptions import HTTPError
from urllib3.util import Timeout

LACKS = "BookKeeper before 4.16 does not repair placement"
REMEDY = "upgrade the AutoRecovery daemons; until then only ledgers with lost bookies are marked"
TIMEOUT = Timeout(connect=2.0, read=5.0)
_OLDER, _NEWER = "/api/v1/bookie/gc", "/api/v1/bookie/gc/suspend_compaction"
_MISSING = 404


def base_of(address: str) -> str:
    """The URL of an address of cluster.autorecovery, which may have no scheme."""
    return (address if "://" in address else f"http://{address}").rstrip("/")


def is_outdated(address: str) -> bool:
    """Whether a daemon is older than 4.16; false if it does not respond."""
    with urllib3.PoolManager(timeout=TIMEOUT, retries=False) as pool:
        try:
            older, newer = (pool.request("OPTIONS", base_of(address) + route).status for route in (_OLDER, _NEWER))
        except HTTPError:
            return False
    return older != _MISSING == newer


def outdated(addresses: Iterable[str]) -> list[str]:
    """Those of these daemons that are older than 4.16."""
    return [address for address in addresses if is_outdated(address)]
