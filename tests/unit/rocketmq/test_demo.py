"""What the demo counts: a changed message must not pass for the one that was written."""

import pytest

from trueup.connectors.rocketmq.protocol.compression import LZ4, closed
from trueup.sandbox.demo.move import duplicates
from trueup.sandbox.demo.rocketmq import fifo_disorder
from trueup.sandbox.demo.rocketmq_shop import (
    COMPRESSED,
    DELAYED,
    TRANSACTIONAL,
    ShopOrder,
    order_of,
    same_message,
    same_record,
)
from trueup.sandbox.demo.shop import disorder, skipped

BEGUN_MS = 1_700_000_000_000
ORDERS = {f"hangzhou-{number}": order_of(f"hangzhou-{number}", BEGUN_MS) for number in range(400)}
PLAIN = next(key for key, order in ORDERS.items() if not order.kinds)
SMALL = next(key for key, order in ORDERS.items() if order.kinds == {COMPRESSED})


def stored(key: str, **changes: object) -> bool:
    """Whether the copy of an order passes, with these changes."""
    order = ORDERS[key]
    marks = {"trueup-source": "hangzhou", "ROCKETMQ_REPLICATOR_SOURCE": "hangzhou", "trueup-time": str(order.born_ms)}
    found = {"raw": order.raw, "sys": order.sys, "born_ms": 1, "stored_properties": order.properties | marks}
    return same_message(key, BEGUN_MS, **{**found, **changes})  # type: ignore[arg-type]


def record(order: ShopOrder, **changes: object) -> bool:
    """Whether the record of an order passes, with these changes."""
    headers = [(name, text.encode()) for name, text in order.properties.items() if name != "KEYS"]
    found = {"value": order.body, "born_ms": order.born_ms, "headers": [("trueup-source", b"hangzhou"), *headers]}
    return same_record(order.properties["KEYS"], BEGUN_MS, **{**found, **changes})  # type: ignore[arg-type]


def test_there_are_orders_of_every_kind() -> None:
    kinds = [kind for order in ORDERS.values() for kind in order.kinds]
    assert set(kinds) == {DELAYED, TRANSACTIONAL, COMPRESSED}


def test_what_was_written_passes() -> None:
    assert (stored(PLAIN), stored(SMALL), record(ORDERS[PLAIN]), record(ORDERS[SMALL])) == (True, True, True, True)


@pytest.mark.parametrize(
    "changes",
    [
        {"raw": b"other"},
        {"stored_properties": {**ORDERS[PLAIN].properties, "TAGS": "other"}},
        {"stored_properties": {**ORDERS[PLAIN].properties, "more": "1"}},
        {"stored_properties": {name: text for name, text in ORDERS[PLAIN].properties.items() if name != "note"}},
        {"stored_properties": ORDERS[PLAIN].properties, "born_ms": 1},
    ],
)
def test_a_message_with_other_content_is_counted(changes: dict[str, object]) -> None:
    assert not stored(PLAIN, **changes)


def test_a_message_that_was_compressed_again_is_counted() -> None:
    other = next(
        key for key, order in ORDERS.items() if order.kinds == {COMPRESSED} and order.sys != closed(b"", LZ4)[1]
    )
    raw, sys = closed(ORDERS[other].body, LZ4)
    assert not stored(other, raw=raw, sys=sys)


@pytest.mark.parametrize("changes", [{"value": b"other"}, {"born_ms": 1}, {"headers": [("TAGS", b"new")]}])
def test_a_record_with_other_content_is_counted(changes: dict[str, object]) -> None:
    assert not record(ORDERS[PLAIN], **changes)


@pytest.mark.parametrize(
    ("there", "found"), [(["a-1", "a-1"], (0, 1)), (["a-1"], (0, 1)), (["a-1", "a-1", "a-1"], (1, 1))]
)
def test_a_copy_of_a_delayed_order_is_as_often_as_its_original(there: list[str], found: tuple[int, int]) -> None:
    assert duplicates({"a": {0: ["a-1", "a-1"]}, "b": {0: there}}, lambda key: False) == found


@pytest.mark.parametrize("log", [["a-1", "a-1"], ["b-1", "b-1"]])
def test_an_order_that_is_twice_in_a_cluster_is_counted(log: list[str]) -> None:
    assert duplicates({"a": {0: log}, "b": {0: ["b-1"]}}, bool) == (1, 0)


def test_a_committed_transaction_is_known_by_its_id() -> None:
    key = next(key for key, order in ORDERS.items() if order.kinds == {TRANSACTIONAL})
    properties = ORDERS[key].properties
    mark = {"__transactionId__": properties["UNIQ_KEY"]}
    assert (stored(key, stored_properties=properties | mark, born_ms=ORDERS[key].born_ms), stored(key)) == (True, False)


def test_orders_of_each_cluster_have_an_order_of_their_own() -> None:
    assert (disorder(["a-1", "b-0", "a-2", "b-1"]), disorder(["a-1", "a-3", "a-2", "b-1", "b-0"])) == (0, 2)


def test_a_fifo_group_is_out_of_order_or_in_two_queues() -> None:
    first, second, *_ = (key for key, order in ORDERS.items() if order.fifo == ORDERS[PLAIN].fifo)
    found = [
        fifo_disorder(log, BEGUN_MS) for log in ({0: [first, second]}, {0: [second, first]}, {0: [first], 1: [second]})
    ]
    assert found == [0, 1, 1]


def test_what_a_group_passes_over_is_skipped_unless_it_read_it_before() -> None:
    log = {0: ["a-0", "a-4", "a-8"], 1: ["a-1"]}
    assert skipped(log, {0: "a-8", 1: "a-1"}, {"a-0"}) == 1
