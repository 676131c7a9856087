"""A journal with one ledger, read by Spark's Java client in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tests.configuration import parse
from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.bookkeeper.topology import Bookie, Status, Topology
from trueup.streams.bookkeeper.codec import topology_record
from trueup.streams.journal.codec import ledger_key
from trueup.streams.journal.journal import Journal

LEDGER = {
    "ledger": 7,
    "mzxid": 1,
    "version": 0,
    "ctime_ms": 1,
    "seen_ms": 1,
    "state": int(LedgerState.CLOSED),
    "ensemble": 2,
    "quorum": 2,
    "ack_quorum": 2,
    "last_entry": 9,
    "length": 1,
    "custom": {},
    "error": "",
    "fragments": [{"first_entry": 0, "bookies": ["b0:3181", "b1:3181"]}],
}


def journal(settings: Mapping[str, object]) -> Journal:
    found = parse(settings)
    return Journal(found.journal.bootstrap, found.journal, found.cluster.name)


def read_by_spark(settings: Mapping[str, object], root: Path) -> list[int]:
    """The ledgers that a query finds in a journal to which this writes ledger 7."""
    made = journal(settings)
    made.create()
    made.put([("ledgers", ledger_key(7), LEDGER)])
    made.put([("topology", b"topology", topology_record(topology(1)))])
    job = {
        "settings": settings,
        "bootstrap": made.bootstrap,
        "data": str(root / "data"),
        "epoch": 2,
        "out": str(root / "out.npy"),
    }
    (root / "job.json").write_text(json.dumps(job))
    words = [sys.executable, "-m", "tests.integration.placement.drive_placement", str(root / "job.json")]
    subprocess.run(words, check=True, timeout=300)
    found: list[int] = np.load(root / "out.npy")["ledger"].tolist()
    return found


def topology(epoch: int) -> Topology:
    return Topology(epoch, 1_000, tuple(Bookie(f"b{n}:3181", "/r", Status.WRITABLE, 0) for n in range(2)))
