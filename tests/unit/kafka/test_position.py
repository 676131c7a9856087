from trueup.connectors.contract import Position
from trueup.connectors.kafka.replication.batches.position import BatchPosition, ahead, following


def test_a_place_survives_the_journal() -> None:
    place = BatchPosition(7, {5 << 60: 3, 9: 2**31 - 1}, 40, epoch=5)
    assert BatchPosition.of(place.position(), 0) == place


def test_what_was_never_copied_begins_at_the_start() -> None:
    assert BatchPosition.of(Position(), 12) == BatchPosition(12)


def test_an_offset_without_our_memory_counts_as_chosen() -> None:
    assert BatchPosition.of(Position(30, {"other": 1}), 12) == BatchPosition(30, chosen=True)


def test_sequences_begin_again_at_zero() -> None:
    assert (following(2**31 - 1), ahead(1, 2**31 - 2), ahead(2**31 - 2, 1)) == (0, 3, -3)


def test_a_place_agrees_with_a_target_that_has_what_it_counts() -> None:
    place = BatchPosition(9, {1: 5, 2: 0})
    assert (place.agrees({1: 4}), place.agrees({1: 5}), place.agrees({1: 4, 3: 0})) == (True, False, False)
