"""Generates millions of ledger records in the journal's format. Avro bodies are joined from precomputed pieces.

The ids of a block differ only in their low 13 bits. Each record is joined from four pieces.
"""

from collections.abc import Iterator

from confluent_kafka import Producer

from trueup.state.bookkeeper.topology import Bookie, Status, Topology
from trueup.streams.bookkeeper.topics import LEDGERS
from trueup.streams.journal.codec import encode, ledger_key
from trueup.streams.journal.journal import Journal

BOOKIES, RACKS, ENSEMBLES = 201, 3, 4_099
BLOCK = 1 << 13
FIRST = BLOCK
"""The first id. A smaller id is shorter than its two low bytes."""
ZXIDS = 1 << 40
_AGO_MS = 1_750_000_000_000


def bookie(number: int) -> str:
    """A bookie name of realistic length."""
    return f"bookie-{number}.bookie.pulsar.svc.cluster.local:3181"


def members(at: int) -> list[int]:
    """Bookies of the n-th ensemble, one in each of three racks."""
    step = BOOKIES // RACKS
    return [RACKS * ((at * (7 + rack) + at // step) % step) + rack for rack in range(RACKS)]


def topology(epoch: int, lost: int | None = None) -> Topology:
    """All bookies in three racks. ``lost``: the bookie that is lost."""
    bookies = (
        Bookie(bookie(n), f"/rack{n % RACKS}", Status.LOST if n == lost else Status.WRITABLE, _AGO_MS)
        for n in range(BOOKIES)
    )
    return Topology(epoch, _AGO_MS + epoch, tuple(bookies))


def holding(lost: int, ledgers: int) -> int:
    """Number of the first ``ledgers`` ledgers that a bookie stores."""
    hits = [at for at in range(ENSEMBLES) if lost in members(at)]
    return sum(len(range(at, ledgers, ENSEMBLES)) for at in hits)


def bodies(start: int, end: int) -> Iterator[tuple[bytes, bytes]]:
    """Key and Avro body of ledgers ``start`` to ``end``, counted from 0."""
    tails = [_body(0, 0, at)[2:] for at in range(ENSEMBLES)]
    low = [_varint(2 * n | 1 << 14)[:2] for n in range(BLOCK)]
    for at in range(start, end):
        ledger = FIRST + at
        if at == start or not ledger % BLOCK:
            high, zxid = _varint(ledger // BLOCK), _varint((ZXIDS + ledger) // BLOCK)
        bits = low[ledger % BLOCK]
        yield ledger_key(ledger), b"".join((bits, high, bits, zxid, tails[at % ENSEMBLES]))


def _body(ledger: int, mzxid: int, ensemble: int) -> bytes:
    names = [bookie(n) for n in members(ensemble)]
    return encode(
        LEDGERS,
        {
            "ledger": ledger,
            "mzxid": mzxid,
            "version": 1,
            "ctime_ms": _AGO_MS + ensemble,
            "seen_ms": _AGO_MS,
            "state": 3,
            "ensemble": RACKS,
            "quorum": 2,
            "ack_quorum": 2,
            "last_entry": 999,
            "length": 1_000_000,
            "fragments": [{"first_entry": 0, "bookies": names}],
            "custom": {"application": b"pulsar", "component": b"managed-ledger"},
            "error": "",
        },
    )


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def publish(journal: Journal, start: int, end: int) -> None:
    """Write ledgers to the journal and wait for the broker's acknowledgement."""
    topic = journal.topic("ledgers")
    assert next(bodies(start, start + 1))[1] == _body(FIRST + start, ZXIDS + FIRST + start, start % ENSEMBLES)
    producer = Producer(
        {
            **journal.topics.client,
            "compression.type": "lz4",
            "linger.ms": 20,
            "batch.size": 500_000,
            "queue.buffering.max.messages": 500_000,
        }
    )
    for key, body in bodies(start, end):
        while True:
            try:
                producer.produce(topic, body, key)
                break
            except BufferError:
                producer.poll(0.05)
    if left := producer.flush(120):
        raise RuntimeError(f"{left} records not acknowledged")
