"""Reading a whole cluster: into columns, into the view of a cold stream, and again after a lost connection.

The peer is BookKeeper's own read of all metadata, the warm Auditor's bookie-to-ledgers index, as reported by its metric
BOOKIE_TO_LEDGERS_MAP_CREATION_TIME.
"""

import time
from pathlib import Path

from bench.common import jobs
from bench.common.measure import Failed, tell
from bench.common.rows import Row, less
from bench.placement.lost_bookie import indexes
from bench.placement.site import Site
from bench.placement.znodes import encoded
from trueup.connectors.bookkeeper.metadata import queries
from trueup.state.bookkeeper.ledgers import Ledgers, concat

ROUNDS, STARTS, CHANGES = 3, 6, 100
SNAPSHOT, START, RESYNC_S, FIRST_S = 10.0, 3.0, 2.0, 6.0
LIMIT_S = 900.0


def run(site: Site, root: Path, ledgers: int, index_s: list[float]) -> list[Row]:
    """``index_s``: index times of the Auditor, if already measured on this site."""
    site.fill(ledgers)
    peer = index_s or indexes(site, ROUNDS)
    tell(f"the Auditor's index of {ledgers:,} ledgers: {', '.join(f'{s:.2f}' for s in peer)} s")
    columns = [_columns(site) for _ in range(ROUNDS)]
    tell(f"snapshots into columns: {', '.join(f'{s:.2f}' for s in columns)} s")
    touched = {site.znodes.paths.ledger(i): encoded(i, site.members(i)).hex() for i in _spread(ledgers)}
    job = {
        "zookeeper": site.cluster.zookeeper.address,
        "racks": str(site.cluster.rack_script),
        "data": str(root / "data"),
        "ledgers": ledgers,
        "starts": STARTS,
        "losses": ROUNDS,
        "touched": touched,
    }
    results = jobs.run("bench.placement.drive_start", job, root, LIMIT_S)
    starts = [line["s"] for line in results if line["what"] == "start"]
    resyncs = [line["s"] for line in results if line["what"] == "resync"]
    size = f"{ledgers:,} ledgers"
    return [
        less(f"Snapshot of {size} into columns; peer: the Auditor's index", "s", peer, columns, SNAPSHOT),
        less(f"Cold start to a complete view, {size}; peer: the same", "s", peer, starts[1:], START),
        less("  the first in a new Spark session; peer: the limit", "s", [FIRST_S], starts[:1], 1.0),
        less(f"Resynchronisation, {CHANGES} of {size} changed; peer: the limit", "s", [RESYNC_S], resyncs, 1.0),
    ]


def _columns(site: Site) -> float:
    begun = time.monotonic()
    found: Ledgers = concat([batch.ledgers for batch in queries.snapshot(site.znodes.client, site.znodes.paths, 0)])
    taken = time.monotonic() - begun
    if len(found) != site.ledgers:
        raise Failed(f"expected {site.ledgers} ledgers in the snapshot, found {len(found)}")
    return taken


def _spread(ledgers: int) -> range:
    return range(0, ledgers, max(1, ledgers // CHANGES))[:CHANGES]
