"""Journals and checkpoints of earlier releases: the present code reads their records, earlier code those of today, and
a state of another layout has another number, so that the view is built again beside it."""

import json
import zlib
from collections.abc import Mapping
from typing import Any

import fastavro
import numpy as np
import pytest

from tests.formats import example, kept, shown, topics
from trueup.state.bookkeeper import ledgers
from trueup.state.deletion import owned_ledgers
from trueup.state.deletion import view as owned
from trueup.state.deletion.verdicts import LEAK
from trueup.state.placement import view as placed
from trueup.state.placement.policy import fencing
from trueup.state.placement.view import FINDING
from trueup.streams.deletion import query as deletion
from trueup.streams.journal.codec import decode, encode, read
from trueup.streams.journal.topic import topic_of
from trueup.streams.placement import query as placement


def test_a_record_of_every_topic_is_kept() -> None:
    assert sorted(kept()) == topics()  # after a new topic: python -m tests.formats


@pytest.mark.parametrize("topic", topics())
def test_a_kept_record_is_read(topic: str) -> None:
    one = kept()[topic]
    assert agrees(one["record"], shown(decode(topic, bytes.fromhex(one["body"]))))


@pytest.mark.parametrize("topic", topics())
def test_earlier_code_reads_a_record_of_today(topic: str) -> None:
    record = example(json.loads(topic_of(topic).text))
    earlier = shown(read(encode(topic, record), fastavro.parse_schema(kept()[topic]["schema"]), topic, "a record"))
    assert agrees(earlier, shown(record))


def agrees(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether every field of the earlier record is in the present one."""
    return {name: now.get(name) for name in earlier} == dict(earlier)


LAYOUTS = {
    "placement": (placement.FORM, [FINDING, ledgers._ROW, fencing._ROW], ledgers._FORM, fencing._FORM, placed.CELLS),
    "deletion": (deletion.FORM, [owned_ledgers.NODE, owned_ledgers.OWNED, owned_ledgers.LISTED, LEAK], owned.CELLS),
}


@pytest.mark.parametrize(("view", "number", "digest"), [("placement", 8, 951757812), ("deletion", 5, 1868964988)])
def test_a_state_of_another_layout_has_another_number(view: str, number: int, digest: int) -> None:
    form, dtypes, *forms = LAYOUTS[view]
    layout = [sorted(dtype.items()) if isinstance(dtype, Mapping) else np.dtype(dtype).descr for dtype in dtypes]
    assert (form, zlib.crc32(repr((layout, forms)).encode())) == (number, digest)
