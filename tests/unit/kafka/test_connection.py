"""State that a connection keeps between responses."""

from trueup.connectors.kafka.client.connection import Frames


def test_memory_without_references_is_reused() -> None:
    frames = Frames()
    frames.take(100_000)[:5] = b"first"
    assert frames.take(90_000)[:5] == b"first"


def test_memory_that_is_looked_at_stays_as_it_is() -> None:
    frames = Frames()
    part = frames.take(100_000)[10:20]
    part[:] = bytes(10)
    frames.take(100_000)[:] = b"x" * 100_000
    assert part == bytes(10)


def test_a_larger_answer_gets_memory_of_its_size() -> None:
    frames = Frames()
    frames.take(100_000)
    assert len(frames.take(5_000_000)) == 5_000_000
