"""Ledger metadata with extreme values, damaged or not: decoding by record and by column is equivalent.

``python -m tests.property.codecs.metadata_pairs COUNT SEED`` compares COUNT znodes.
"""

import random
import struct
import sys
from collections.abc import Iterator

import numpy as np

from trueup.connectors.bookkeeper.messages import LedgerMetadata
from trueup.connectors.bookkeeper.metadata import bulk, metadata
from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths
from trueup.connectors.zookeeper.requests import Znodes
from trueup.state.bookkeeper.observations import LedgerRecord, LedgerState
from trueup.state.common.errors import BadBytes

EDGES = (-(2**63), -(2**63) + 1, -(2**31), -2, -1, 0, 1, 2, 254, 255, 256, 2**31 - 1, 2**63 - 2, 2**63 - 1)
LEDGER, AT_ONCE = 5, 2_000
PATHS = BookKeeperPaths("/ledgers")


def generated(rng: random.Random) -> bytes:
    """A znode of metadata version 3."""
    ensemble = rng.randint(1, 4)
    message = LedgerMetadata(
        quorumSize=rng.choice((1, ensemble, rng.randint(1, ensemble))),
        ensembleSize=ensemble,
        length=_number(rng),
        state=rng.choice((1, 2, 3, 3, 3)),
    )
    for name in ("lastEntryId", "ctime"):
        if rng.random() < 0.8:
            setattr(message, name, _number(rng))
    if rng.random() < 0.3:
        message.ackQuorumSize = rng.choice((-(2**31), -1, 0, 1, ensemble))
    for first in sorted({_number(rng) for _ in range(rng.choice((1, 1, 1, 2, 3)))}):
        members = [b"%c%d:3181" % (97 + at, rng.randint(0, 3)) for at in range(ensemble)]
        message.segment.add(ensembleMember=members, firstEntryId=first)
    body = bytearray(message.SerializeToString())
    for _ in range(rng.choice((0, 0, 0, 1, 2))):
        body[rng.randrange(len(body))] = rng.randrange(256)
    return metadata.KEY + b"3\n" + metadata._varint(len(body)) + bytes(body)


def differences(count: int, seed: int) -> Iterator[tuple[bytes, object, object]]:
    """Znodes with different results of the two decoders, and these results."""
    rng = random.Random(seed)
    for start in range(0, count, AT_ONCE):
        znodes = [generated(rng) for _ in range(min(AT_ONCE, count - start))]
        for data, one, many in zip(znodes, map(by_record, znodes), by_column(znodes), strict=True):
            if one != many:
                yield data, one, many


def by_record(data: bytes) -> object:
    """The fields that placement depends on, decoded as a record."""
    where = metadata.ZnodeSource(LEDGER, PATHS.ledger(LEDGER), 7, 1, 55, 9)
    try:
        record = metadata.decode(data, where)
    except BadBytes as error:
        record = metadata.unreadable(where, error)
    return _of(record, metadata.entries(record))


def by_column(znodes: list[bytes]) -> list[object]:
    """The same fields, decoded by column, with the records derived from the columns."""
    stat = struct.pack("!qqqqiiiqiiq", 1, 7, 55, 0, 1, 0, 0, 0, 0, 0, 1)
    size = np.array([len(data) for data in znodes], np.int64)
    at = np.concatenate([[0], np.cumsum(size + len(stat))[:-1]])
    answer = Znodes(b"".join(data + stat for data in znodes), at, size, 99)
    batch = bulk.decode(np.full(len(znodes), LEDGER, np.int64), [answer], PATHS.ledger, 9)
    return [_of(record, int(batch.ledgers.entries[row])) for row, record in enumerate(batch.records())]


def _of(record: LedgerRecord, entries: int) -> object:
    fragments = [(fragment["first_entry"], tuple(fragment["bookies"])) for fragment in record["fragments"]]
    sizes = (record["ensemble"], record["quorum"], record["ack_quorum"])
    numbers = (record["state"], record["last_entry"], record["length"], record["ctime_ms"])
    return None if record["state"] == LedgerState.UNREADABLE else (numbers, sizes, fragments, entries)


def _number(rng: random.Random) -> int:
    return rng.choice(EDGES) if rng.random() < 0.5 else rng.randint(0, 300)


def main() -> int:
    """Compare, print the differences."""
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    found = list(differences(count, seed))
    print(f"{len(found)} of {count:,} differ, seed {seed}", *found[:5], sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
