import zlib

import pytest

from trueup.connectors.rocketmq.protocol.compression import LZ4, MOST, ZLIB, ZSTD, closed, opened
from trueup.state.common.errors import BadBytes


@pytest.mark.parametrize("kind", [LZ4, ZSTD, ZLIB])
@pytest.mark.parametrize("size", [0, 1, 100_000, 5 << 20])
def test_a_body_reads_back(kind: int, size: int) -> None:
    body = (b"a body " * (size // 7 + 1))[:size]
    raw, sys = closed(body, kind)
    assert bytes(opened(raw, sys, "here")) == body


def test_a_type_of_none_is_zlib() -> None:
    assert opened(zlib.compress(b"old"), 1, "here") == b"old"


def test_a_body_that_is_not_compressed_stays_as_it_is() -> None:
    assert opened(b"plain", 0x300, "here") == b"plain"


@pytest.mark.parametrize("kind", [LZ4, ZSTD, ZLIB])
def test_a_body_that_grows_beyond_the_limit_is_refused(kind: int) -> None:
    raw, sys = closed(bytes(MOST + 1), kind)
    with pytest.raises(BadBytes, match="more than"):
        opened(raw, sys, "here")


@pytest.mark.parametrize("kind", [LZ4, ZSTD, ZLIB, 4])
def test_other_bytes_are_refused(kind: int) -> None:
    with pytest.raises(BadBytes):
        opened(b"other bytes", 1 | kind << 8, "here")


def test_a_stream_that_ends_early_is_refused() -> None:
    with pytest.raises(BadBytes, match="truncated"):
        opened(zlib.compress(b"a body" * 100)[:-3], 0x301, "here")
