"""Compaction of a bucket's log: when it happens, and what it retains."""

from tests.memory_store import MemoryStore
from trueup.state.common.bucket_log import BLOCK_ROWS, TAIL_BLOCKS, TAIL_ROWS, BucketLog, LogShape


def test_a_tail_of_many_rows_is_compacted() -> None:
    log = BucketLog(MemoryStore(), LogShape())
    assert [log.append(b"", rows) for rows in (TAIL_ROWS, 1)] == [False, True]


def test_a_tail_of_many_blocks_is_compacted() -> None:
    log = BucketLog(MemoryStore(), LogShape())
    assert [log.append(b"", 1) for _ in range(TAIL_BLOCKS + 1)] == [False] * TAIL_BLOCKS + [True]


def test_a_large_base_lets_its_tail_grow() -> None:
    log = BucketLog(MemoryStore(), LogShape(4, 4 * BLOCK_ROWS))
    assert [log.append(b"", rows) for rows in (2 * BLOCK_ROWS, 1)] == [False, True]


def test_what_is_compacted_is_a_base_of_blocks() -> None:
    store = MemoryStore([b"old"])
    log = BucketLog(store, LogShape(tail_blocks=1, tail_rows=1))
    log.compact(BLOCK_ROWS + 5, lambda begin, end: f"{begin}-{end}".encode())
    assert (log.shape, store.log) == (LogShape(2, BLOCK_ROWS + 5), [b"0-16384", b"16384-16389"])
